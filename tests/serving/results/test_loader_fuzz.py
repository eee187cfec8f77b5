"""Files damaged in every way a disk, an editor or a stranger can: a loader that falls over, hangs
or eats the memory would take the notebook, and the student's work in it, with it.

`test_hostile` tries what was thought of; here hypothesis looks for what was not.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course.serving.files import ResultFileError
from course.serving.results import load_result
from course.serving.traces import load_trace
from tests.lanes import examples
from tests.serving.results import layouts
from tests.serving.results.test_hostile import ODD, loads_or_says_why

pytestmark = pytest.mark.slow

HANG_S = 30
FUZZ = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)

TRACES = {
    "plain": "arrival_s,prompt_tokens,output_tokens\n0,12,3\n0.5,9,4\n1.25,80,1\n",
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
    "burstgpt": "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,"
    "Total tokens,Log Type\n5,1,3.1,ChatGPT,472,18,490,Conversation log\n"
    "45,1,0.0,ChatGPT,108,0,108,Conversation log\n118,2,8.0,GPT-4,417,276,693,API log\n",
    "mooncake": '{"timestamp": 0, "input_length": 6755, "output_length": 500, "hash_ids": [0, 1]}\n'
    '{"timestamp": 3000, "input_length": 7319, "output_length": 490, "hash_ids": [0, 2]}\n',
}
RESULTS = {name: json.dumps(value) for name, value in layouts.EVERY_LAYOUT.items()}
RESULTS["vllm, appended"] = "\n".join(json.dumps(layouts.vllm_detail()) for _ in range(2))
RESULTS["aiperf, lines"] = "\n".join(
    json.dumps(line) for line in (layouts.aiperf_line(), layouts.aiperf_failed_line())
)

EVERY = {**RESULTS, **TRACES}


class Hang(BaseException):
    """Not an Exception, so that no handler on the way takes it for a fault of the file."""


@contextlib.contextmanager
def no_hang() -> Iterator[None]:
    """Give up on a loader that does not come back, where the system can interrupt it."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def give_up(*_: object) -> None:
        raise Hang(f"nothing after {HANG_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def survives(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with no_hang():
        loads_or_says_why(path)


# --- damage ------------------------------------------------------------------------------------

Damage = Callable[[bytes, st.DrawFn], bytes]
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
KEY = re.compile(rb'"[^"\\]*"\s*:')
SCRAPS = (
    b"\x00", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\n", b"\n\n", b"\\", b'"',
    b"'", b",", b",,", b":", b"{", b"}", b"[", b"]", b"/* */", b"//", b"NaN", b"-Infinity",
    b"1e999", b"0x1F", b"1_000", b"\\ud800", b"\\u0000", b"\xe2\x80\xa8", b"\x1b[2J", b"\t", b";",
)  # fmt: skip
WORTHS = (
    b"1" + b"0" * 400, b"-1" + b"0" * 400, b"9" * 5000, b"NaN", b"Infinity", b"-Infinity", b"1e308",
    b"1e-320", b"1e400", b"-0.0", b"-1", b"0", b"0.5", b"9007199254740993", b"null", b"true",
    b'"12"', b'"inf"', b"[]", b"{}", b"[[]]", b'""', b"1e15", b"1e12", b"00", b"1.", b".5", b"+1",
)  # fmt: skip


def cut(content: bytes, draw: st.DrawFn) -> bytes:
    return content[: draw(st.integers(0, len(content)))]


def beheaded(content: bytes, draw: st.DrawFn) -> bytes:
    return content[draw(st.integers(0, len(content))) :]


def flipped(content: bytes, draw: st.DrawFn) -> bytes:
    changed = bytearray(content)
    places = st.integers(0, max(len(changed) - 1, 0))
    for at in draw(st.lists(places, min_size=1, max_size=6)):
        if changed:
            changed[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(changed)


def with_scrap(content: bytes, draw: st.DrawFn) -> bytes:
    at = draw(st.integers(0, len(content)))
    return content[:at] + draw(st.sampled_from(SCRAPS)) + content[at:]


def with_other_number(content: bytes, draw: st.DrawFn) -> bytes:
    found = list(NUMBER.finditer(content))
    if not found:
        return content
    chosen = draw(st.sampled_from(found))
    return content[: chosen.start()] + draw(st.sampled_from(WORTHS)) + content[chosen.end() :]


def with_key_twice(content: bytes, draw: st.DrawFn) -> bytes:
    found = list(KEY.finditer(content))
    if not found:
        return content
    chosen, other = draw(st.sampled_from(found)), draw(st.sampled_from(found))
    return content[: chosen.start()] + other.group() + b"0," + content[chosen.start() :]


def with_part_again(content: bytes, draw: st.DrawFn) -> bytes:
    first, last = sorted(draw(st.tuples(*[st.integers(0, len(content))] * 2)))
    return content[:last] + content[first:]


def nested(content: bytes, draw: st.DrawFn) -> bytes:
    depth = draw(st.sampled_from([1, 3, 50, 900, 1100, 20_000]))
    opening, closing = draw(st.sampled_from([(b"[", b"]"), (b'{"a":', b"}")]))
    if draw(st.booleans()):
        return opening * depth + content + closing * depth
    found = list(NUMBER.finditer(content))
    if not found:
        return content
    chosen = draw(st.sampled_from(found))
    inner = opening * depth + chosen.group() + closing * depth
    return content[: chosen.start()] + inner + content[chosen.end() :]


def recoded(content: bytes, draw: st.DrawFn) -> bytes:
    text = content.decode("utf-8", "replace") + draw(st.sampled_from(["", "é", "“", "\U0001f600"]))
    coding = draw(st.sampled_from(["utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-7"]))
    return text.encode(coding, "replace")


def with_other_file(content: bytes, draw: st.DrawFn) -> bytes:
    return content + b"\n" + EVERY[draw(st.sampled_from(sorted(EVERY)))].encode()


DAMAGES: tuple[Damage, ...] = (
    cut, beheaded, flipped, with_scrap, with_other_number, with_other_number, with_key_twice,
    with_part_again, nested, recoded, with_other_file,
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, layout: str) -> bytes:
    content = EVERY[layout].encode()
    for damage in draw(st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=3)):
        content = damage(content, draw)
    return content


@pytest.mark.parametrize("layout", EVERY)
@settings(FUZZ, max_examples=examples(100))
@given(data=st.data())
def test_no_damage_escapes(layout: str, tmp_path, data: st.DataObject) -> None:
    """Only ResultFileError, whatever bytes are where a tool's file should be."""
    survives(tmp_path / "file", data.draw(damaged(layout)))


@pytest.mark.parametrize("layout", layouts.EVERY_LAYOUT)
@settings(FUZZ, max_examples=examples(60))
@given(data=st.data())
def test_no_value_in_the_wrong_place_escapes(layout: str, tmp_path, data: st.DataObject) -> None:
    """JSON without a fault, in which one or two values are not what they should be: the damage
    that only the readers' own checks can find."""
    value = json.loads(RESULTS[layout])
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(list(places_in(value))))
        value = replaced(value, place, data.draw(st.sampled_from(ODD)))
    survives(tmp_path / "file", json.dumps(value).encode())


Place = tuple[str | int, ...]


@pytest.mark.parametrize("name", ["\ud800", "\x1b[2J", ["x"] * 3, {"a": 1}, None, "m" * 1000])
def test_a_models_name_in_a_list_is_made_printable(name: object, tmp_path) -> None:
    """Found by the fuzz: AIPerf lists its models, and the names went to the terminal as they
    were."""
    value = layouts.aiperf(input_config={"endpoint": {"model_names": [name, "b"]}})
    survives(tmp_path / "file", json.dumps(value).encode())
    assert load_result(tmp_path / "file").runs[0].label.endswith("b")


def places_in(value: Any, here: Place = ()) -> Iterator[Place]:
    """The way to every value inside a value, the value itself included."""
    yield here
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for key, part in inner:
        yield from places_in(part, (*here, key))


def replaced(value: Any, place: Place, new: Any) -> Any:
    if not place:
        return new
    key, *rest = place
    if isinstance(value, dict):
        return {**value, key: replaced(value[str(key)], tuple(rest), new)}
    return [replaced(v, tuple(rest), new) if i == key else v for i, v in enumerate(value)]


def test_the_fuzz_reaches_what_lies_behind_the_first_check() -> None:
    """Damage that every loader refuses at the first byte would test nothing but that byte."""
    whole = [name for name in RESULTS if read(name, EVERY[name].encode())]
    assert whole == list(RESULTS)
    assert all(read(name, EVERY[name].encode()) for name in TRACES)


def read(name: str, content: bytes) -> bool:
    loader: Callable[[Path], object] = load_trace if name in TRACES else load_result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        try:
            loader(path)
        except ResultFileError:
            return False
    return True


# --- memory ------------------------------------------------------------------------------------

NUMBER_TEXT = re.compile(NUMBER.pattern.decode())
SIZE = 150_000
TIMES_THE_FILE = 90
BLOCKS = (
    "[],", "{},", '{"a":0},', "[[[]]],", "0,", "1.5,", '"x",', "null,", "NaN,", "\n", " ",
    '"\\u00e9",', "[0,0,0,0],", '{"a":{"b":[]}},',
)  # fmt: skip


@st.composite
def swollen(draw: st.DrawFn) -> bytes:
    """A file of one pattern over and over, alone or where a layout has a list."""
    block = draw(st.sampled_from(BLOCKS))
    body = block * (SIZE // len(block))
    inner = "[" + body.rstrip(",") + "]"
    kind = draw(st.sampled_from(["alone", "list", "runs", *layouts.EVERY_LAYOUT]))
    if kind == "alone":
        return body.encode()
    if kind == "list":
        return inner.encode()
    if kind == "runs":
        return ('{"benchmarks": ' + inner + "}").encode()
    text = RESULTS[kind]
    found = list(re.finditer(r"\[[^\[\]]*\]", text)) or list(NUMBER_TEXT.finditer(text))
    chosen = draw(st.sampled_from(found))
    return (text[: chosen.start()] + inner + text[chosen.end() :]).encode()


@settings(FUZZ, max_examples=examples(40))
@given(content=swollen())
def test_memory_stays_in_proportion_to_the_file(tmp_path, content: bytes) -> None:
    """A file of a few megabytes must not need the machine's whole memory."""
    path = tmp_path / "file"
    path.write_bytes(content)
    for loader in (load_result, load_trace):
        tracemalloc.start()
        try:
            with no_hang(), contextlib.suppress(ResultFileError):
                loader(path)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < TIMES_THE_FILE * len(content) + 2**23, f"{peak / len(content):.0f} times"


def test_many_short_requests_stay_in_proportion(tmp_path) -> None:
    """The densest file there is: a request in some twenty bytes."""
    size = 8_000
    found = layouts.vllm_detail(
        ttfts=[0.1] * size, itls=[[]] * size, output_lens=[1] * size, input_lens=[1] * size,
        start_times=[0.0] * size, latencies=[0.1] * size, errors=[""] * size,
        queue_times=layouts.GONE, generated_texts=layouts.GONE, num_prompts=size, completed=size,
    )  # fmt: skip
    path = layouts.write(tmp_path, found)
    tracemalloc.start()
    result = load_result(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.requests is not None
    assert result.requests.size == size
    assert peak < TIMES_THE_FILE * path.stat().st_size
