"""A prediction in words, with the band of the nearest measured kind; nothing is predicted here."""

from __future__ import annotations

from course.serving.catalog import model as model_named
from course.serving.validation.closed_loop import ServingPoint, is_held_against_points
from course.serving.validation.error_tables import error_band

_WORDS = {
    "dense": "dense models in bf16 and fp8",
    "4 bits": "a dense model in nvfp4",
    "experts": "a mixture of experts (gpt-oss-120b in mxfp4)",
}


def nearest_kind(model: str, precision: str) -> str:
    """Return the measured kind that is nearest: "experts", "4 bits" or "dense".

    >>> nearest_kind("Mixtral-8x7B", "bf16"), nearest_kind("Qwen3-8B", "int4")
    ('experts', '4 bits')
    """
    if model_named(model).is_moe:
        return "experts"
    return "4 bits" if precision in ("nvfp4", "int4") else "dense"


def prediction_text(point: ServingPoint, gpu: str, n_gpus: int, model: str, precision: str) -> str:
    """Return throughput, TTFT and TPOT of a predicted point, each with its band of nine in ten.

    Where nothing of the kind was measured, that is said, and the band is that of what is nearest.
    """
    kind = nearest_kind(model, precision)
    lines = []
    for name, figure, value, unit in (
        ("throughput", "throughput", point.output_tokens_per_s, "tokens/s"),
        ("TTFT, mean", "TTFT", 1e3 * point.ttft_s, "ms"),
        ("TPOT, mean", "TPOT", 1e3 * point.tpot_s, "ms"),
    ):
        factor = error_band(kind, figure)
        lines.append(
            f"{name:<11} {value:10,.1f} {unit:<8}  nine of ten within "
            f"{value / factor:,.1f} to {value * factor:,.1f}"
        )
    lines.append(f"band: that of {_WORDS[kind]}, on set-ups that the constants had not seen")
    if not is_held_against_points(gpu, n_gpus, model, precision):
        lines.append("outside what was measured: no server of this kind was among the points")
    return "\n".join(lines)
