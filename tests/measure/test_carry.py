"""The fit as a card of the cost model: the same step must cost the same on both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from course.measure.carry import measured_card, measured_constants
from course.measure.fitting import fit_record
from course.serving.pricing.linear import StepFeatures
from course.serving.pricing.roofline import RooflineStepCost
from tests.measure.samples import BANDWIDTH, OVERHEAD_S, PEAK, RECORD


def test_the_card_has_the_fitted_figures() -> None:
    card = measured_card(RECORD, fit_record(RECORD, "bf16"))
    assert card.bandwidth_bytes_per_s == pytest.approx(BANDWIDTH, rel=1e-3)
    assert card.peak_flop_per_s("bf16") == pytest.approx(PEAK["bf16"], rel=1e-3)
    assert card.memory_bytes == RECORD.device.memory_bytes


def test_a_layer_pays_its_products_overheads_and_its_launches() -> None:
    constants = measured_constants(fit_record(RECORD, "bf16"))
    assert (constants.mbu, constants.mfu_bf16) == (1.0, 1.0)
    assert constants.launch_per_layer_s == pytest.approx(4 * OVERHEAD_S + 15 * 2e-6, rel=1e-2)
    assert constants.overhead_s == pytest.approx(OVERHEAD_S + 3 * 2e-6, rel=1e-2)


def test_a_step_of_a_real_model_reads_its_weights_at_the_measured_rate() -> None:
    """Qwen2.5-0.5B would be 24 layers; any model of the catalogue that fits in 64 GiB will do."""
    fit = fit_record(RECORD, "bf16")
    card = replace(measured_card(RECORD, fit), memory_bytes=64 * 2**30)
    cost = RooflineStepCost("Qwen3-8B", card, constants=measured_constants(fit))
    step = cost.step_seconds(StepFeatures(0, 0, 1, 1))
    assert step == pytest.approx(cost.streamed_bytes / BANDWIDTH, rel=0.02)


def test_a_record_without_launches_cannot_be_carried() -> None:
    without = replace(RECORD, points=tuple(p for p in RECORD.points if p.bench != "launch_eager"))
    with pytest.raises(ValueError, match="no launch time"):
        measured_constants(fit_record(without, "bf16"))
