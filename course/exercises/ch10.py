# mypy: allow-any-generics
"""The six exercises of notebook 10, measuring a machine: four core, two stretch.

The references and the wrong answers are ordinary functions; each is copied into a notebook as it
stands, so it uses nothing from outside its body but `math` and `np`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from course.exercises.build import choice_exercise, function_exercise, value_exercise
from course.exercises.definition import Unacceptable, Wrong
from course.exercises.values import Figures, Number, Whole, plain
from course.serving import catalog
from course.serving.engine import EngineConfig, Run, simulate_closed
from course.serving.pricing import Constants, LinearStepCost, RooflineStepCost
from course.serving.workload import Fixed, Lognormal, closed_loop_work

# --- 10.1 what the stopwatch says ---------------------------------------------------------------


def copy_bandwidth(buffer_bytes: int, seconds: np.ndarray, warm_up: int) -> float:
    """Typical bandwidth of a copy, in bytes/s, counting what is read and what is written.

    buffer_bytes: size of the buffer that is copied; seconds: how long each call took, in the order
    of the calls; the first warm_up calls are warm-up.
    """
    typical_s = np.median(seconds[warm_up:])
    return float(2 * buffer_bytes / typical_s)


def from_the_mean_time(buffer_bytes: int, seconds: np.ndarray, warm_up: int) -> float:
    """All bytes over all time."""
    return float(2 * buffer_bytes / np.mean(seconds[warm_up:]))


def warm_up_counted(buffer_bytes: int, seconds: np.ndarray, warm_up: int) -> float:
    """The median of every call."""
    return float(2 * buffer_bytes / np.median(seconds))


def fastest_call(buffer_bytes: int, seconds: np.ndarray, warm_up: int) -> float:
    """The best call there was."""
    return float(2 * buffer_bytes / np.min(seconds[warm_up:]))


def mean_of_rates(buffer_bytes: int, seconds: np.ndarray, warm_up: int) -> float:
    """A rate for each call, and their mean."""
    return float(np.mean(2 * buffer_bytes / seconds[warm_up:]))


def _stopwatches(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Calls of a copy: slow first ones, and now and then one that another program disturbed."""
    cases = []
    for _ in range(5):
        buffer_bytes = int(rng.integers(32, 257)) * 2**20
        count, warm_up = int(rng.integers(40, 70)), int(rng.integers(12, 18))
        usual_s = 2 * buffer_bytes / rng.uniform(1e10, 2e11)
        seconds = usual_s * rng.lognormal(0.0, 0.06, size=count)
        seconds[:warm_up] *= np.linspace(6.0, 1.3, warm_up)
        disturbed = warm_up + rng.choice(count - warm_up, size=6, replace=False)
        seconds[disturbed] *= rng.uniform(3.0, 12.0, size=6)
        cases.append(
            {"buffer_bytes": buffer_bytes, "seconds": seconds.round(7), "warm_up": warm_up}
        )
    return cases


# --- 10.3 two costs in one time -----------------------------------------------------------------


def weight_bandwidth(weight_bytes: np.ndarray, seconds: np.ndarray) -> float:
    """Bandwidth at which weights are read, in bytes/s.

    weight_bytes: sizes of several weight matrices; seconds: how long a product of each with one
    token vector took. Every product also costs a fixed time, the same for all, which is not known.
    """
    seconds_per_byte, _fixed_s = np.polyfit(weight_bytes, seconds, 1)
    return float(1 / seconds_per_byte)


def largest_matrix_alone(weight_bytes: np.ndarray, seconds: np.ndarray) -> float:
    """Bytes over time of the largest, whose fixed part matters least."""
    largest = np.argmax(weight_bytes)
    return float(weight_bytes[largest] / seconds[largest])


def mean_of_the_ratios(weight_bytes: np.ndarray, seconds: np.ndarray) -> float:
    """Bytes over time of each, averaged."""
    return float(np.mean(weight_bytes / seconds))


def median_of_the_ratios(weight_bytes: np.ndarray, seconds: np.ndarray) -> float:
    """The middle of bytes over time."""
    return float(np.median(weight_bytes / seconds))


def through_the_origin(weight_bytes: np.ndarray, seconds: np.ndarray) -> float:
    """A straight line without a fixed part."""
    return float(np.sum(weight_bytes**2) / np.sum(weight_bytes * seconds))


def slope_upside_down(weight_bytes: np.ndarray, seconds: np.ndarray) -> float:
    """The slope itself."""
    seconds_per_byte, _fixed_s = np.polyfit(weight_bytes, seconds, 1)
    return float(seconds_per_byte)


def _matrices(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Products whose fixed part is from a fifth to the whole of the largest one's reading."""
    cases = []
    for share in (0.2, 0.5, 1.0, 0.3, 0.7):
        weight_bytes = np.sort(rng.choice(np.arange(1, 33), size=6, replace=False)) * 2.0**20
        bandwidth = rng.uniform(1e10, 3e12)
        fixed_s = share * weight_bytes.max() / bandwidth
        seconds = (fixed_s + weight_bytes / bandwidth) * rng.normal(1.0, 5e-4, size=6)
        cases.append({"weight_bytes": weight_bytes, "seconds": seconds})
    return cases


# --- 10.4 a step from its parts -----------------------------------------------------------------


def decode_step_s(
    weight_bytes: float,
    kv_bytes: float,
    flop: float,
    layers: int,
    bandwidth_bytes_per_s: float,
    peak_flop_per_s: float,
    fixed_s: float,
) -> float:
    """Seconds of one decode step, predicted from measured constants.

    weight_bytes, flop: what the matrices of all layers read, and compute for the whole batch;
    kv_bytes: what attention reads from the KV cache; fixed_s: what one layer costs besides.
    """
    matrices_s = math.hypot(weight_bytes / bandwidth_bytes_per_s, flop / peak_flop_per_s)
    return layers * fixed_s + matrices_s + kv_bytes / bandwidth_bytes_per_s


def sharp_corner(
    weight_bytes: float,
    kv_bytes: float,
    flop: float,
    layers: int,
    bandwidth_bytes_per_s: float,
    peak_flop_per_s: float,
    fixed_s: float,
) -> float:
    """The longer of reading and computing."""
    matrices_s = max(weight_bytes / bandwidth_bytes_per_s, flop / peak_flop_per_s)
    return layers * fixed_s + matrices_s + kv_bytes / bandwidth_bytes_per_s


def nothing_overlaps(
    weight_bytes: float,
    kv_bytes: float,
    flop: float,
    layers: int,
    bandwidth_bytes_per_s: float,
    peak_flop_per_s: float,
    fixed_s: float,
) -> float:
    """First all reading, then all computing."""
    matrices_s = weight_bytes / bandwidth_bytes_per_s + flop / peak_flop_per_s
    return layers * fixed_s + matrices_s + kv_bytes / bandwidth_bytes_per_s


def one_pot(
    weight_bytes: float,
    kv_bytes: float,
    flop: float,
    layers: int,
    bandwidth_bytes_per_s: float,
    peak_flop_per_s: float,
    fixed_s: float,
) -> float:
    """Weights and cache in one roofline."""
    read_s = (weight_bytes + kv_bytes) / bandwidth_bytes_per_s
    return layers * fixed_s + math.hypot(read_s, flop / peak_flop_per_s)


def fixed_part_once(
    weight_bytes: float,
    kv_bytes: float,
    flop: float,
    layers: int,
    bandwidth_bytes_per_s: float,
    peak_flop_per_s: float,
    fixed_s: float,
) -> float:
    """One fixed part for the whole step."""
    matrices_s = math.hypot(weight_bytes / bandwidth_bytes_per_s, flop / peak_flop_per_s)
    return fixed_s + matrices_s + kv_bytes / bandwidth_bytes_per_s


# model, batch, context: around the ridge, so that every term shows
_STEPS = (
    ("Llama-3.1-8B", 96, 1024), ("Qwen3-8B", 48, 4096), ("Llama-2-7B", 128, 256),
    ("Llama-3.1-8B", 192, 512), ("Llama-3.1-8B", 64, 3000),
)  # fmt: skip


def _machine_cost(model: str, bandwidth: float, peak: float, fixed_s: float) -> RooflineStepCost:
    """A step's cost on a machine with these measured constants and room for everything."""
    card = replace(
        catalog.gpu("L4"), name="measured", bandwidth_bytes_per_s=bandwidth,
        peak_bf16_flop_per_s=peak, memory_bytes=512 * 2**30,
    )  # fmt: skip
    known = Constants(overhead_s=0.0, launch_per_layer_s=fixed_s, mbu=1.0, mfu_bf16=1.0)
    return RooflineStepCost(model, card, constants=known)


def _decode_steps(rng: np.random.Generator) -> list[dict[str, Any]]:
    cases = []
    for name, batch, context in _STEPS:
        bandwidth = float(f"{rng.uniform(1e11, 2e12):.3g}")
        peak = float(f"{bandwidth * rng.uniform(80, 160):.3g}")
        fixed_s = float(f"{rng.uniform(2e-4, 6e-4) * 2e11 / bandwidth:.3g}")
        cost = _machine_cost(name, bandwidth, peak, fixed_s)
        cases.append(
            {
                "weight_bytes": float(cost.streamed_bytes),
                "kv_bytes": float(cost.kv_bytes_per_token * batch * context),
                "flop": 2.0 * cost.model.active_parameters * batch,
                "layers": cost.model.layers,
                "bandwidth_bytes_per_s": bandwidth,
                "peak_flop_per_s": peak,
                "fixed_s": fixed_s,
            }
        )
    return cases


def _step_in_the_engine(_: Any, case: Any) -> str | None:
    """What the engine's decode steps last, of the batch that the case was made from."""
    for name, batch, context in _STEPS:
        cost = _machine_cost(
            name, case["bandwidth_bytes_per_s"], case["peak_flop_per_s"], case["fixed_s"]
        )
        kv_bytes = cost.kv_bytes_per_token * batch * context
        if (cost.streamed_bytes, kv_bytes) == (case["weight_bytes"], case["kv_bytes"]):
            work = closed_loop_work(batch, Fixed(context - 1), Fixed(3), seed=0)
            config = EngineConfig(max_num_seqs=batch, max_num_batched_tokens=batch * context)
            run = simulate_closed(batch, 0.0, work, cost, config, progress=False)
            step_s = float(np.mean(run.tpot_s))
            return f"{name}, batch {batch}, context {context:,}: {plain(step_s, 3)} s a step"
    return None


# --- 10.5 what a full machine makes -------------------------------------------------------------


def full_tokens_per_s(step_s: float, prompt_s: float, users: int, output_tokens: int) -> float:
    """Output tokens/s of a machine in which `users` sequences always run.

    step_s: seconds of a step in which all decode; prompt_s: seconds by which a new request's
    prompt makes one step longer, for everybody; output_tokens: length of each answer. A user sends
    the next request as soon as the last is answered.
    """
    token_s = step_s + users / output_tokens * prompt_s
    return users / token_s


def decode_only(step_s: float, prompt_s: float, users: int, output_tokens: int) -> float:
    """Prompts cost nothing."""
    return users / step_s


def own_prompt_only(step_s: float, prompt_s: float, users: int, output_tokens: int) -> float:
    """Each answer waits for its own prompt and no other."""
    answer_s = output_tokens * step_s + prompt_s
    return users * output_tokens / answer_s


def a_prompt_in_every_step(step_s: float, prompt_s: float, users: int, output_tokens: int) -> float:
    """Every step carries a prompt."""
    return users / (step_s + prompt_s)


def one_at_a_time(step_s: float, prompt_s: float, users: int, output_tokens: int) -> float:
    """As if users took turns."""
    answer_s = output_tokens * step_s + prompt_s
    return output_tokens / answer_s


def _full_machines(rng: np.random.Generator) -> list[dict[str, Any]]:
    cases = []
    for users, output_tokens in ((32, 128), (8, 200), (64, 256), (16, 64), (48, 100)):
        step_s = round(float(rng.uniform(0.008, 0.12)), 4)
        prompt_s = round(float(step_s * rng.uniform(1.0, 4.0)), 4)
        cases.append(
            {
                "step_s": step_s,
                "prompt_s": prompt_s,
                "users": users,
                "output_tokens": output_tokens,
            }
        )
    return cases


def _full_machine_in_the_engine(_: Any, case: Any) -> str:
    """Tokens/s of a closed loop of so many users without a pause."""
    prompt_tokens, users = 500, case["users"]
    work = closed_loop_work(20 * users, Fixed(prompt_tokens), Fixed(case["output_tokens"]), seed=0)
    cost = LinearStepCost(
        fixed_s=case["step_s"], per_prefill_token_s=case["prompt_s"] / prompt_tokens
    )
    config = EngineConfig(max_num_seqs=users, max_num_batched_tokens=2048)
    run = simulate_closed(users, 0.0, work, cost, config, progress=False)
    tokens_per_s = float(run.emitted_tokens.sum() / run.end_s)
    return f"{users} users in the engine: {plain(tokens_per_s, 3)} tokens/s"


# --- 10.6 seats for a measured machine ----------------------------------------------------------

_PROMISE_S = 0.100
_USERS = 96
_BEST_SEATS = 19
_LOSS = 0.12  # share of the best throughput that an answer may give away
_SCATTER_S = 0.001  # by which the P95 of one afternoon's 720 answers may miss the promise


@lru_cache(maxsize=1)
def _small_server() -> RooflineStepCost:
    """Llama-3.1-8B on a machine that was measured: 250 GB/s, 25 TFLOP/s, its fixed costs."""
    card = replace(
        catalog.gpu("L4"), name="measured", bandwidth_bytes_per_s=250e9,
        peak_bf16_flop_per_s=25e12, memory_bytes=48 * 2**30,
    )  # fmt: skip
    known = Constants(overhead_s=2e-3, launch_per_layer_s=60e-6, mbu=1.0, mfu_bf16=1.0)
    return RooflineStepCost("Llama-3.1-8B", card, constants=known)


def _served(seats: int, seed: int, requests: int = 720) -> Run:
    cost = _small_server()
    work = closed_loop_work(requests, Lognormal(6.0, 0.5), Lognormal(5.3, 0.5), seed=seed)
    config = EngineConfig(
        max_num_seqs=seats, max_num_batched_tokens=512, num_kv_blocks=cost.kv_blocks()
    )
    return simulate_closed(_USERS, 0.0, work, cost, config, seed=seed, progress=False)


def _two_afternoons(rng: np.random.Generator) -> list[dict[str, Any]]:
    # A fresh installation compiles the engine at its first run: here, outside the time limit.
    _served(4, seed=0, requests=8)
    return [{"seed": int(seed)} for seed in rng.integers(2**31, size=2)]


def _tpot_and_throughput(seats: Any, case: Any) -> tuple[float, float]:
    """P95 of TPOT (s), and output tokens/s, in one simulated afternoon."""
    if seats < 1:
        raise Unacceptable(f"{seats} seats serve nobody: give at least 1.")
    run = _served(min(int(seats), 10_000), case["seed"])
    tokens_per_s = float(run.emitted_tokens.sum() / run.end_s)
    return float(np.nanpercentile(run.tpot_s, 95)), tokens_per_s


def _accept_seats(seen: Any, best: Any, case: Any) -> str | None:
    p95_s, tokens_per_s = seen
    if p95_s > _PROMISE_S + _SCATTER_S:
        return (
            f"P95 of TPOT is {1e3 * p95_s:.1f} ms, over the promised "
            f"{1e3 * _PROMISE_S:.0f} ms: too many share the machine."
        )
    if tokens_per_s < (1 - _LOSS) * best[1]:
        return (
            f"P95 of TPOT is {1e3 * p95_s:.1f} ms and inside the promise, but the machine "
            f"makes only {plain(tokens_per_s, 3)} tokens/s: more seats would keep it too."
        )
    return None


EXERCISES = (
    function_exercise(
        "10.1",
        title="What the stopwatch says",
        question=(
            "A script copied one large buffer many times and wrote down every call. The first "
            "calls are warm-up (memory is handed out, code is compiled), and other programs broke "
            "in on a few of the others. Which bandwidth do you report? A copy reads each byte and "
            "writes it once; count both, as this course does."
        ),
        track="core",
        kind="compute",
        minutes=5,
        difficulty=1,
        reference=copy_bandwidth,
        cases=_stopwatches,
        result=Number("bytes/s", rel=0.003, noun="a number of bytes per second"),
        wrong=(
            Wrong(
                "mean-time",
                from_the_mean_time,
                "A few calls during which another program had the machine pull the mean time up: "
                "you measured your neighbours too. The median call is what a copy usually takes.",
            ),
            Wrong(
                "warm-up-counted",
                warm_up_counted,
                "The warm-up calls are in your median. They measure how memory is handed out and "
                "code is loaded, once, and not the copy: leave the first warm_up calls away.",
            ),
            Wrong(
                "best-call",
                fastest_call,
                "That is the luckiest call. Asked is the typical one: with enough calls the best "
                "is always better, so two runs of unequal length could not be compared.",
            ),
            Wrong(
                "mean-of-rates",
                mean_of_rates,
                "You average rates, in which a disturbed call counts as a small number and hardly "
                "shows, but still pulls. Take the typical *time* first, then divide once.",
            ),
        ),
        hints=(
            "Which calls say nothing about the copy itself? Which number is unmoved by a few "
            "wild ones?",
            "seconds[warm_up:] are the calls that count; np.median is unmoved by a few.",
            "2 * buffer_bytes over the median: bytes are read and written.",
        ),
        explanation=(
            "Warm-up away, many repeats, the median with its quartiles, and a sentence on what "
            "the bytes count: with that a bandwidth can be compared."
        ),
    ),
    choice_exercise(
        "10.2",
        title="Which of his figures?",
        question=(
            "A colleague wants to know how long one reader waits for a token of a model with 16 GB "
            "of weights on his laptop. Its memory moves 90 GB/s by the data sheet, its last-level "
            "cache holds 24 MiB. He copied one buffer again and again, after a warm-up, and took "
            "medians, read and written bytes counted: 410 GB/s with 1 MiB, 150 GB/s with 16 MiB, "
            "68 GB/s with 1 GiB, 67 GB/s with 4 GiB. Which time should his report give, at best?"
        ),
        track="core",
        kind="audit",
        minutes=4,
        difficulty=2,
        options={
            "a": "About 39 ms: 16 GB at 410 GB/s, the best that the machine did.",
            "b": "About 92 ms: 16 GB at 174 GB/s, the mean of his four figures.",
            "c": "About 120 ms: at 67 GB/s, and half of that, since decoding only reads.",
            "d": "About 178 ms: 16 GB at the data sheet's 90 GB/s.",
            "e": "About 240 ms: 16 GB at 67 GB/s, as with his largest buffer.",
        },
        right="e",
        wrong={
            "a": (
                "best-figure-is-the-machine",
                "1 MiB never left the cache after its first copy, and 410 GB/s is more than the "
                "memory can do. Of 16 GB nothing is still there when the next token comes.",
            ),
            "b": (
                "mean-of-all-figures",
                "You average the cache's speed with the memory's. No weight is read at either's "
                "mean: ask for each figure what was measured, and keep those that fit your case.",
            ),
            "c": (
                "copy-counted-half",
                "67 GB/s already counts both directions: so many bytes pass in a second, read or "
                "written. 16 GB that are only read are 16 GB, not half.",
            ),
            "d": (
                "data-sheet-for-the-machine",
                "90 GB/s is width times clock, a bound that no program reached here: his own large "
                "buffers say 67. A measured figure goes before a printed one.",
            ),
        },
        hints=(
            "Where is a buffer of 1 MiB a microsecond after it was copied? And one of 4 GiB?",
            "Which of the buffers behave like 16 GB of weights, read once a token?",
            "The rule of counting was stated: bytes over bytes per second, with nothing halved.",
        ),
        explanation=(
            "Two of his figures are the cache's, which the data sheet's bound gives away. Decoding "
            "reads gigabytes once a step, so only buffers far larger than the cache tell about it; "
            "or many buffers in turn, as the benches of this course use."
        ),
    ),
    function_exercise(
        "10.3",
        title="Two costs in one time",
        question=(
            "You timed the product of one token vector with weight matrices of several sizes. "
            "Every product costs a fixed time (dispatch, start of the kernel) and then the time "
            "of reading its weights. You know neither. At what bandwidth are the weights read?"
        ),
        track="core",
        kind="compute",
        minutes=6,
        difficulty=2,
        reference=weight_bandwidth,
        cases=_matrices,
        result=Number("bytes/s", rel=0.02, noun="a number of bytes per second"),
        wrong=(
            Wrong(
                "largest-alone",
                largest_matrix_alone,
                "The largest matrix hides the fixed part best, but it is still in its time: from "
                "one size alone nobody can tell a slow memory from a costly start.",
            ),
            Wrong(
                "mean-of-ratios",
                mean_of_the_ratios,
                "In each ratio the fixed time is counted as reading, most of all in the small "
                "ones. Averaging does not take it out: look at how the time *grows* with bytes.",
            ),
            Wrong(
                "median-of-ratios",
                median_of_the_ratios,
                "A median is a shield against a few wild calls. The fixed time is in *every* call "
                "and makes each ratio too small: no choice among them takes it out.",
            ),
            Wrong(
                "line-through-the-origin",
                through_the_origin,
                "Your line starts at 0 s for 0 bytes. A product of nothing would still cost its "
                "start: let the line have an intercept of its own.",
            ),
            Wrong(
                "seconds-per-byte",
                slope_upside_down,
                "That is the slope: the seconds that one more byte costs. A bandwidth is bytes "
                "per second, the other way up.",
            ),
        ),
        hints=(
            "Two sizes, two times: which part of the time is the same in both?",
            "time = fixed + bytes / bandwidth is a straight line over the bytes.",
            "np.polyfit(weight_bytes, seconds, 1) returns slope and intercept; 1/slope is asked.",
        ),
        explanation=(
            "The slope tells the bandwidth, the intercept the fixed time; a single size tells "
            "neither. With batches beyond the ridge a third constant joins in, the peak, and the "
            "line gets a round corner."
        ),
    ),
    function_exercise(
        "10.4",
        title="A step from its parts",
        question=(
            "Predict a decode step before it is measured. In the matrices, reading the weights and "
            "computing with them overlap, with the round corner of section 2; attention runs after "
            "them and reads the KV cache at the same bandwidth; and every layer has its fixed "
            "time. Which of these times add up, and which do not? The result below the check has "
            "the same batch in the engine beside it."
        ),
        track="core",
        kind="predict",
        minutes=6,
        difficulty=2,
        reference=decode_step_s,
        cases=_decode_steps,
        result=Number("s", rel=0.003),
        evidence=_step_in_the_engine,
        wrong=(
            Wrong(
                "sharp-corner",
                sharp_corner,
                "The longer of the two is right far from the ridge. Near it, both are in each "
                "other's way: at the ridge itself the round corner is √2 times the sharp one.",
            ),
            Wrong(
                "nothing-overlaps",
                nothing_overlaps,
                "You add reading and computing, as if nothing were computed while weights arrive. "
                "A kernel does both at once: the square root of the squares.",
            ),
            Wrong(
                "cache-with-the-weights",
                one_pot,
                "You put the cache's bytes into the matrices' roofline. Attention is a kernel of "
                "its own, after the matrices: it cannot hide behind their arithmetic.",
            ),
            Wrong(
                "fixed-once-a-step",
                fixed_part_once,
                "The fixed time is paid by every layer, since every layer starts its own kernels. "
                "Over 32 layers it is a good part of a small step.",
            ),
        ),
        hints=(
            "What runs one after the other adds up: how many such terms are there?",
            "math.hypot(a, b) is √(a² + b²): reading the weights, and computing.",
            "layers * fixed_s + hypot(weight reading, computing) + kv_bytes / bandwidth.",
        ),
        explanation=(
            "It is the formula of `RooflineStepCost`, with your machine's constants in the place "
            "of a data sheet's."
        ),
    ),
    function_exercise(
        "10.5",
        title="What a full machine makes",
        question=(
            "From measured step times, predict the throughput of a closed loop before you run it: "
            "`users` sequences always run, each answer has output_tokens tokens, and each new "
            "request's prompt makes one step longer for everybody. The result below the check has "
            "the engine's own twenty rounds beside it, start and end included."
        ),
        track="stretch",
        kind="predict",
        minutes=6,
        difficulty=2,
        reference=full_tokens_per_s,
        cases=_full_machines,
        result=Number("tokens/s", rel=0.002),
        evidence=_full_machine_in_the_engine,
        wrong=(
            Wrong(
                "prompts-for-free",
                decode_only,
                "You count steps in which all decode. Somebody's prompt is computed in some of "
                "them, and those last longer for all: prompt_s must be in it.",
            ),
            Wrong(
                "own-prompt-only",
                own_prompt_only,
                "Each answer waits for its own prompt, you say. It also waits for the prompts of "
                "all who begin while it is being written: as many as there are users.",
            ),
            Wrong(
                "a-prompt-in-every-step",
                a_prompt_in_every_step,
                "A prompt comes in only when a seat changes hands: each does so once in "
                "output_tokens steps, all of them users / output_tokens times a step.",
            ),
            Wrong(
                "one-at-a-time",
                one_at_a_time,
                "That is one user's stream. All of them get a token from the same step: that is "
                "what batching is for.",
            ),
        ),
        hints=(
            "In how many of its steps does a seat get a new request? And all seats together?",
            "A mean step lasts step_s + users / output_tokens · prompt_s.",
            "Every mean step makes one token for each user.",
        ),
        explanation=(
            "tokens/s = batch / (step + batch/output · prompt): the formula behind the curves of "
            "lesson 03, now with a machine's own constants."
        ),
    ),
    value_exercise(
        "10.6",
        title="Seats for a measured machine",
        question=(
            "The fit of a small server says: 250 GB/s, 25 TFLOP/s, 2 ms and 60 µs a layer of fixed "
            "time. It is to serve Llama-3.1-8B in bf16 (15 GB of weights a step) to 96 users who "
            "never pause; memory has room for all. Prompts have about 460 tokens, answers about "
            "230; P95 of TPOT must stay within 100 ms. How many seats (max_num_seqs) keep that and "
            "make the most tokens/s? Your number runs on two afternoons that you have not seen. It "
            "may miss the promise by 1 ms, which is chance, and give away up to 12 % of the "
            "throughput."
        ),
        track="stretch",
        kind="configure",
        minutes=8,
        difficulty=3,
        reference=_BEST_SEATS,
        value=Whole("seats", noun="a whole number of seats, at least 1"),
        comment="a whole number of seats",
        cases=_two_afternoons,
        observe=_tpot_and_throughput,
        result=Figures(
            ("P95 TPOT", "output"),
            ("s", "tokens/s"),
            noun="P95 of TPOT within 100 ms and nearly the most tokens/s",
            within="P95 of TPOT at most 0.1 s, give or take 1 ms; 12 % of the throughput",
        ),
        accept=_accept_seats,
        describe=lambda case: "96 users on the measured server, in a simulated afternoon",
        wrong=(
            Wrong(
                "neighbours-prompts-forgotten",
                72,
                "With about 70 seats a step in which all decode does last 100 ms. But someone's "
                "new prompt is computed in every few steps, and all who read along wait for it.",
                also=lambda seats: 67 <= seats <= 80,
            ),
            Wrong(
                "ridge-is-the-best-batch",
                100,
                "100 is the ridge: 25 TFLOP/s over 250 GB/s at two bytes a weight. It says where "
                "computing takes as long as reading, not what people wait for. The promise binds "
                "long before.",
                also=lambda seats: seats >= 90,
            ),
            Wrong(
                "mean-for-tail",
                26,
                "With so many seats the *mean* TPOT keeps the promise, but it is a P95: answers "
                "that happen to live through many of the others' prompts are slower than the mean.",
                also=lambda seats: 24 <= seats <= 27,
            ),
            Wrong(
                "few-seats-are-safe",
                6,
                "The promise is kept with room to spare, and the machine reads its weights for a "
                "handful of readers: each more would have been served nearly for nothing.",
                also=lambda seats: 1 <= seats <= 10,
            ),
        ),
        hints=(
            "Reading the weights takes 60 ms, whatever you do. What may the rest cost?",
            "A mean token costs, as in 10.5, step + seats / answer length · prompt_s. A prompt of "
            "460 tokens computes for 276 ms, but in a step that reads the weights anyway: with the "
            "round corner prompt_s, the step's extra length, is about 232 ms.",
            "P95 is worse than the mean, since some answers live through more prompts than others: "
            "find the seats at which the mean is about 88 ms, and leave the rest to the tail.",
        ),
        explanation=(
            "Of the 100 ms, 64 go to reading the weights and to fixed time; prompts of others take "
            "most of the rest. With constants measured at home the knee of a server that you do "
            "not own yet can be found in seconds."
        ),
    ),
)
