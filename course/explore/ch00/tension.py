"""The tension explorer: how many users at once, and what each gets; no scheduling rule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from course.figures.ch00.tension import LoadCurve, Tension, TensionPicture
from course.serving import catalog
from course.serving.engine import EngineConfig, Run, simulate_closed
from course.serving.pricing import RooflineStepCost
from course.serving.workload import Workload
from course.ui import Explorer, Prediction, Preset, Table, choice, slider, stops, toggle
from course.words import rounded, seconds

if TYPE_CHECKING:
    import pandas as pd

GPU, MODEL = "H100-80GB-SXM", "Qwen3-8B"
# The measured server's own KV pool. Its seat limit is not recorded; its pace keeps slowing down to
# 512 users, so the limit lies above, and 1,024 is vLLM's default on such a card.
KV_TOKENS, SEATS, BLOCK = 377_024, 1024, 16
_QUANTILE = 0.95
LOADS = (
    1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 112, 128, 160, 192, 256, 384, 512,
)  # fmt: skip
# Six rounds leave some four after the first wave, in which all users send at once; the real server
# was measured with five requests a user, fifty at least, and its first wave counts.
_ROUNDS, _LEAST_REQUESTS = 6, 48
_MEASURED_ROUNDS, _LEAST_MEASURED = 5, 50


@dataclass(frozen=True)
class TensionParameters:
    """How many users, what they send, and what they were promised."""

    users: int = stops(
        40, LOADS, label="Users at the same time",
        help="Each sends a request, reads the whole answer, and at once sends the next",
    )  # fmt: skip
    lengths: tuple[int, int] = choice(
        (2048, 2048),
        {
            "2,048 in, 2,048 out": (2048, 2048), "8,192 in, 512 out": (8192, 512),
            "128 in, 1,024 out": (128, 1024), "128 in, 128 out": (128, 128),
        },
        label="Tokens", help="Prompt and answer of every request",
    )  # fmt: skip
    ttft_promise_s: float = slider(
        2.0, 0.1, 10.0, 0.1, label="Promise: first token within", unit="s",
        help="A request is good when its first token comes in time and its pace holds",
    )  # fmt: skip
    tpot_promise_ms: float = slider(
        25.0, 5.0, 100.0, 1.0, label="Promise: each further token within", unit="ms",
        help="The mean gap between the output tokens of one answer",
    )  # fmt: skip
    first_wave: bool = toggle(
        False, label="The first wave counts",
        help="All users send at one moment: a fifth of the requests, as in the measured runs",
    )  # fmt: skip


@dataclass(frozen=True)
class _Level:
    """One load's requests: what each waited and how fast it went, and the time it all took."""

    tokens_per_s: float
    finished_per_s: float
    ttft_s: np.ndarray
    tpot_s: np.ndarray
    ttft_p95_s: float
    tpot_p95_s: float

    def good_share(self, p: TensionParameters) -> float:
        good = (self.ttft_s <= p.ttft_promise_s) & (self.tpot_s <= p.tpot_promise_ms / 1e3)
        return float(good.mean())

    def good_per_s(self, p: TensionParameters) -> float:
        return self.good_share(p) * self.finished_per_s


def run_of(users: int, lengths: tuple[int, int], first_wave: bool = False) -> Run:
    """Simulate `users` in a closed loop, from an empty server until the last answer.

    `first_wave`: as long as the measured runs were, for whoever counts all of it.
    """
    requests = max(_ROUNDS * users, _LEAST_REQUESTS)
    if first_wave:
        requests = max(_MEASURED_ROUNDS * users, _LEAST_MEASURED)
    prompt, output = lengths
    work = Workload(np.zeros(requests), np.full(requests, prompt), np.full(requests, output))
    config = EngineConfig(
        max_num_seqs=SEATS, max_num_batched_tokens=8192, num_kv_blocks=KV_TOKENS // BLOCK
    )
    return simulate_closed(users, 0.0, work, RooflineStepCost(MODEL, GPU), config)


@lru_cache(maxsize=512)
def level_of(users: int, lengths: tuple[int, int], first_wave: bool = False) -> _Level:
    """Return what so many users see, when each sends again as soon as it is answered.

    In the steady middle of the run: of the requests sent in it, and the answers that end in it.
    With `first_wave` of all requests, from the empty server to the last answer.
    """
    run = run_of(users, lengths, first_wave)
    window = run.window() if first_wave else run.steady_state()
    sent = (run.arrival_s >= window.start_s) & (run.arrival_s < window.end_s)
    ended = (run.finish_s > window.start_s) & (run.finish_s <= window.end_s)
    ttft, tpot = np.asarray(run.ttft_s)[sent], np.asarray(run.tpot_s)[sent]
    finished_per_s = float(ended.sum()) / window.duration_s
    ttft_p95, tpot_p95 = (float(np.quantile(times, _QUANTILE)) for times in (ttft, tpot))
    return _Level(finished_per_s * lengths[1], finished_per_s, ttft, tpot, ttft_p95, tpot_p95)


def _curve(p: TensionParameters, shares: np.ndarray) -> LoadCurve:
    levels = [level_of(users, p.lengths, p.first_wave) for users in LOADS]
    return LoadCurve(
        users=np.array(LOADS, dtype=float),
        tokens_per_s=np.array([level.tokens_per_s for level in levels]),
        tpot_p95_s=np.array([level.tpot_p95_s for level in levels]),
        ttft_p95_s=np.array([level.ttft_p95_s for level in levels]),
        good_per_s=np.array([level.finished_per_s for level in levels]) * shares,
    )


@lru_cache(maxsize=8)
def measured(lengths: tuple[int, int]) -> LoadCurve:
    """Return the measured points of an H100 with Qwen3-8B in bf16 at these lengths."""
    points = catalog.measured_points(
        gpu=GPU, model=MODEL, precision="bf16", n_gpus=1,
        prompt_tokens=lengths[0], output_tokens=lengths[1], load="closed loop",
    )  # fmt: skip
    rows = sorted(points, key=lambda point: point.concurrency or 0)

    def column(name: str) -> np.ndarray:
        return np.array([getattr(row, name) for row in rows], dtype=float)

    return LoadCurve(
        users=column("concurrency"),
        tokens_per_s=column("output_tokens_per_s"),
        tpot_p95_s=column("tpot_p95_s"),
        ttft_p95_s=column("ttft_s"),
        good_per_s=np.full(len(rows), np.nan),
    )


def _tension(p: TensionParameters) -> Tension:
    levels = [level_of(users, p.lengths, p.first_wave) for users in LOADS]
    shares = np.array([level.good_share(p) for level in levels])
    curve, here = _curve(p, shares), level_of(p.users, p.lengths, p.first_wave)
    held = [users for users, share in zip(LOADS, shares, strict=True) if share >= _QUANTILE]
    return Tension(
        title=f"{p.lengths[0]:,} tokens in, {p.lengths[1]:,} out",
        curve=curve,
        measured=measured(p.lengths),
        users=p.users,
        tokens_per_s=here.tokens_per_s,
        tpot_p95_s=here.tpot_p95_s,
        ttft_p95_s=here.ttft_p95_s,
        good_per_s=here.good_per_s(p),
        finished_per_s=here.finished_per_s,
        ttft_promise_s=p.ttft_promise_s,
        tpot_promise_s=p.tpot_promise_ms / 1e3,
        held_users=max(held, default=0),
        held_tokens_per_s=(
            level_of(max(held), p.lengths, p.first_wave).tokens_per_s if held else 0.0
        ),
        most_tokens_per_s=float(curve.tokens_per_s.max()),
    )


def _tension_words(r: Tension) -> str:
    share = r.good_per_s / r.finished_per_s
    here = (
        f"With {r.users} {'user' if r.users == 1 else 'users'} the server makes "
        f"{rounded(r.tokens_per_s)} tokens/s; 95\u00a0% of the requests get their first token "
        f"within {seconds(r.ttft_p95_s)}, and 95\u00a0% at most {seconds(r.tpot_p95_s)} a token "
        f"after it. Of {rounded(r.finished_per_s)} requests/s {rounded(r.good_per_s)} "
        f"({100 * share:.0f}\u00a0%) keep both promises: first token within "
        f"{seconds(r.ttft_promise_s)}, then at most {seconds(r.tpot_promise_s)} a token."
    )
    if not r.held_users:
        return f"{here} No load lets 95\u00a0% of the requests keep both."
    share_of_most = r.held_tokens_per_s / r.most_tokens_per_s
    return (
        f"{here} For 95\u00a0% of the requests that holds up to {r.held_users} users, at "
        f"{100 * share_of_most:.0f}\u00a0% of the most tokens/s that this server shows."
    )


def _tables(r: Tension) -> list[Table]:
    parts = {"simulated": r.curve, "measured": r.measured}
    return [vars(curve) | {"source": name} for name, curve in parts.items()]


def compared_with_measured() -> pd.DataFrame:
    """Return, for each measured sweep, the simulated figures over the measured ones.

    Both with the first wave, in runs of the same length.

    One row a sweep: the median over its loads of the ratio (1 is right), and the range.
    """
    import pandas as pd

    rows = []
    for lengths in ((2048, 2048), (8192, 512), (128, 1024), (128, 128)):
        points = measured(lengths)
        levels = [level_of(int(users), lengths, first_wave=True) for users in points.users]
        ratios = {
            "tokens/s": np.array([level.tokens_per_s for level in levels]) / points.tokens_per_s,
            "P95 TPOT": np.array([level.tpot_p95_s for level in levels]) / points.tpot_p95_s,
            "P95 TTFT": np.array([level.ttft_p95_s for level in levels]) / points.ttft_p95_s,
        }
        row: dict[str, Any] = {"sweep": f"{lengths[0]:,} in, {lengths[1]:,} out"}
        for name, ratio in ratios.items():
            row[name] = f"{np.median(ratio):.2f} ({ratio.min():.2f} … {ratio.max():.2f})"
        rows.append(row)
    return pd.DataFrame(rows).set_index("sweep")


tension = Explorer(
    call="explore.tension",
    title="The whole tension: Qwen3-8B on one H100, more and more users",
    parameters=TensionParameters,
    compute=_tension,
    filmed=lambda p: {f"{p.users} users": run_of(p.users, p.lengths, p.first_wave)},
    drawing=TensionPicture,
    narrate=_tension_words,
    alt=(
        "Four panels over the number of users, from 1 to 512. Throughput climbs and flattens; the "
        "time per token grows; the P95 time to first token climbs and then leaps by orders of "
        "magnitude; goodput rises, and falls off where the throughput arrives on its plateau. A "
        "green bar marks the loads at which 95 % keep both promises. Dots are measured on a real "
        "H100."
    ),
    presets=(
        Preset(
            "Long chats",
            "2,048 tokens in, 2,048 out; first token within 2 s, then 25 ms a token.",
            "Up to how many users does this server keep its promises?",
            {"users": 40, "lengths": (2048, 2048)},
        ),
        Preset(
            "The GPU's best number",
            "The same server at 128 users: about as many tokens per second as it can make.",
            "Who is happy here, and who is not?",
            {"users": 128, "lengths": (2048, 2048)},
        ),
        Preset(
            "The first wave counts",
            "64 users who all send at one moment, in a run of five requests each, all counted.",
            "Whose wait is it that breaks the promise here?",
            {"users": 64, "lengths": (2048, 2048), "first_wave": True},
        ),
        Preset(
            "Short questions, short answers",
            "128 tokens in, 128 out: neither memory nor seats are ever full.",
            "Which of the two promises breaks first as users come?",
            {"users": 256, "lengths": (128, 128)},
        ),
        Preset(
            "Whole documents",
            "8,192 tokens in, 512 out: most of the work is reading.",
            "Why does the throughput in output tokens look so poor here?",
            {"users": 16, "lengths": (8192, 512)},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=lambda r: (
            f"{r.title}. Promised: first token within {seconds(r.ttft_promise_s)}, then at most "
            f"{seconds(r.tpot_promise_s)} a token. Up to how many users (1 to 512) do at least "
            "95\u00a0% of the requests keep both?"
        ),
        unit="users",
        answer=lambda r: float(r.held_users) if r.held_users else None,
    ),
)
