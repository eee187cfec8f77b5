"""`python -m course plan`: from a trace to a number of replicas, for people and scripts."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from course.cli import app

CARDS = ("--gpu", "H100-80GB-SXM", "--model", "Llama-3.1-8B")
SMALL = ("--max-num-seqs", "64", "--max-num-batched-tokens", "2048")


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Forty requests a second for twenty-five seconds."""
    generator = np.random.default_rng(1)
    arrival_s = np.cumsum(generator.exponential(1 / 40, 1000))
    rows = zip(arrival_s, generator.integers(100, 3000, 1000), generator.integers(5, 200, 1000),
               strict=True)  # fmt: skip
    path = tmp_path / "<b>trace & co.csv"
    lines = [f"{at:.6f},{prompt},{output}" for at, prompt, output in rows]
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(lines), "utf-8")
    return path


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        self.addresses += [named[key] or "" for key in ("src", "href") if key in named]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_one_command_gives_answer_table_json_and_page(trace: Path, tmp_path: Path) -> None:
    target, page = tmp_path / "plan.json", tmp_path / "plan.html"
    done = run("--trace", trace, *CARDS, *SMALL, "--slo-ttft", 1, "--slo-tpot", 0.05,
               "--json", target, "--html", page)  # fmt: skip
    assert done.exit_code == 0, done.output
    told = json.loads(target.read_text(encoding="utf-8"))
    best = told["options"][told["best"]]
    assert best["attainment"] >= 0.95
    assert told["answer"] in done.output
    assert all(one["attainment"] < 0.95 for one in told["options"] if one["gpus"] < best["gpus"])
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    assert told["answer"] in reader.text
    assert "<b>trace & co.csv" in reader.text, "a file's name is text, whatever it holds"
    assert "b" not in reader.tags
    assert "script" not in reader.tags
    fetched = [address for address in reader.addresses if not address.startswith("#")]
    assert fetched == [], "the page is read where there is no network"


def test_the_picture_in_the_page_is_well_formed(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    run("--trace", trace, *CARDS, *SMALL, "--slo-ttft", 1, "--html", page)
    text = page.read_text(encoding="utf-8")
    drawn = text[text.index("<svg") : text.index("</svg>") + 6]
    root = ElementTree.fromstring(drawn)
    assert "Share of requests that keep the promise" in root.attrib["aria-label"]
    words = "".join(root.itertext())
    assert "replicas" in words
    assert "promised" in words


def test_a_promise_out_of_reach_is_said_and_shown_by_the_status(trace: Path) -> None:
    done = run("--trace", trace, *CARDS, *SMALL, "--slo-ttft", 0.0001, "--most", 2)
    assert done.exit_code == 1
    assert "This cannot be had with any number of replicas" in done.output


def test_a_price_of_ones_own_is_taken(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    run("--trace", trace, *CARDS, *SMALL, "--replicas", "2", "--slo-ttft", 1, "--price", 1.5,
        "--json", target)  # fmt: skip
    told = json.loads(target.read_text(encoding="utf-8"))
    assert [one["usd_per_hour"] for one in told["options"]] == [3.0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--slo-ttft", 1, "--max-num-seqs", "64,many"), "--max-num-seqs has 'many'"),
        (("--slo-ttft", 1, "--replicas", "0"), "--replicas has '0'"),
        ((), "nothing is promised"),
        (("--slo-ttft", -1), "ttft_s=-1"),
        (("--slo-ttft", 1, "--price", -2), "--price=-2"),
        (("--slo-ttft", 1, "--gpu", "H1000"), "H1000"),
    ],
)
def test_bad_input_is_named(trace: Path, arguments: tuple[object, ...], words: str) -> None:
    done = run("--trace", trace, *CARDS, *arguments)
    assert isinstance(done.exception, ValueError), done.output
    assert words in str(done.exception)
