"""The course's explorers by name, each one call; what a shell is lives in ``course.ui``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course.explore.ch00.one_request import one_request as one_request
    from course.explore.ch00.tension import tension as tension
    from course.explore.ch01.littles_audit import littles_audit as littles_audit
    from course.explore.ch01.many_tools import many_tools as many_tools
    from course.explore.ch01.one_life import one_life as one_life
    from course.explore.ch01.percentile_and_mean import percentile_and_mean as percentile_and_mean
    from course.explore.ch01.requests_view import requests_view as requests_view
    from course.explore.ch02.engine_beside import engine_beside_mm1 as engine_beside_mm1
    from course.explore.ch02.hockey_stick import hockey_stick as hockey_stick
    from course.explore.ch02.loops import loops as loops
    from course.explore.ch02.pooling import pooling as pooling
    from course.explore.ch02.variability import variability as variability
    from course.explore.ch03.batching import batching as batching
    from course.explore.ch03.four_ways import four_ways as four_ways
    from course.explore.ch03.roofline import roofline as roofline
    from course.explore.ch03.token_cost import token_cost as token_cost
    from course.explore.ch04.kv_memory import kv_memory as kv_memory
    from course.explore.ch04.long_prompt import long_prompt as long_prompt
    from course.explore.ch04.prefill_or_decode import prefill_or_decode as prefill_or_decode
    from course.explore.ch04.requests_or_tokens import requests_or_tokens as requests_or_tokens
    from course.explore.ch05.four_verdicts import four_verdicts as four_verdicts
    from course.explore.ch05.overload import overload as overload
    from course.explore.ch05.retry_storm import retry_storm as retry_storm
    from course.explore.ch06.plan_fleet import plan_fleet as plan_fleet
    from course.explore.ch06.ramp import ramp as ramp
    from course.explore.ch06.twenty_is_not_25 import twenty_is_not_25 as twenty_is_not_25
    from course.explore.ch06.which_knee import which_knee as which_knee
    from course.explore.ch10.fit_carried import fit_carried as fit_carried
    from course.explore.ch10.measured_roofline import measured_roofline as measured_roofline
    from course.explore.ch10.predict_measure import predict_measure as predict_measure

# explorer -> its module; loaded when first used, so that one lesson does not wait for all others
_MODULES = {
    "one_request": "course.explore.ch00.one_request",
    "tension": "course.explore.ch00.tension",
    "one_life": "course.explore.ch01.one_life",
    "percentile_and_mean": "course.explore.ch01.percentile_and_mean",
    "littles_audit": "course.explore.ch01.littles_audit",
    "many_tools": "course.explore.ch01.many_tools",
    "requests_view": "course.explore.ch01.requests_view",
    "engine_beside_mm1": "course.explore.ch02.engine_beside",
    "hockey_stick": "course.explore.ch02.hockey_stick",
    "loops": "course.explore.ch02.loops",
    "pooling": "course.explore.ch02.pooling",
    "variability": "course.explore.ch02.variability",
    "roofline": "course.explore.ch03.roofline",
    "batching": "course.explore.ch03.batching",
    "four_ways": "course.explore.ch03.four_ways",
    "token_cost": "course.explore.ch03.token_cost",
    "requests_or_tokens": "course.explore.ch04.requests_or_tokens",
    "prefill_or_decode": "course.explore.ch04.prefill_or_decode",
    "long_prompt": "course.explore.ch04.long_prompt",
    "kv_memory": "course.explore.ch04.kv_memory",
    "ramp": "course.explore.ch06.ramp",
    "which_knee": "course.explore.ch06.which_knee",
    "twenty_is_not_25": "course.explore.ch06.twenty_is_not_25",
    "plan_fleet": "course.explore.ch06.plan_fleet",
    "overload": "course.explore.ch05.overload",
    "retry_storm": "course.explore.ch05.retry_storm",
    "four_verdicts": "course.explore.ch05.four_verdicts",
    "measured_roofline": "course.explore.ch10.measured_roofline",
    "predict_measure": "course.explore.ch10.predict_measure",
    "fit_carried": "course.explore.ch10.fit_carried",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"there is no explorer {name!r}; there are: {__all__}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
