"""A reader's own table of loads: units, names and the line of what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from course.serving.results.load_table import load_table
from course.serving.results.nouns import ResultFileError


def table(folder: Path, text: str) -> Path:
    path = folder / "our sweep.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_common_names_and_units(tmp_path: Path) -> None:
    """Milliseconds are read as seconds, or a median as a mean."""
    path = table(
        tmp_path,
        "Concurrency,output_tokens_per_s,requests_per_s,ttft_p99_ms,median_itl_ms,e2e_mean,TPOT_s\n"
        "4,400,2,250,20,2.0,0.021\n"
        "8,700,3.5,400,22,2.28,\n",
    )
    one, two = load_table(path)
    assert (one.unit, one.load, one.offered, one.group) == ("users", 4, 4, "our sweep")
    assert one.latencies == pytest.approx(
        {"P99 TTFT": 0.25, "median ITL": 0.02, "mean E2E": 2.0, "mean TPOT": 0.021}
    )
    assert "mean TPOT" not in two.latencies
    assert two.in_system == pytest.approx(7.98)


def test_users_who_are_not_there(tmp_path: Path) -> None:
    path = table(tmp_path, "users,requests_per_s,e2e_mean_s\n64,2,8\n")
    assert load_table(path)[0].offered == 16


def test_columns_by_the_readers_own_names(tmp_path: Path) -> None:
    path = table(tmp_path, "n,rate,T,w\n1,10,99,1500\n")
    (row,) = load_table(path, {"users": "n", "tokens": "T", "P99_TTFT_ms": "w"})
    assert (row.unit, row.load, row.output_tokens_per_s) == ("users", 1, 99)
    assert row.latencies == {"P99 TTFT": 1.5}


def test_names_part_the_curves(tmp_path: Path) -> None:
    path = table(tmp_path, "model,rate_per_s,tokens_per_s\na,1,5\nb,1,6\n")
    assert [row.group for row in load_table(path)] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("users,tokens_per_s\n", "holds no row beside its header"),
        ("load,tokens_per_s\n1,2\n", r"line 1: has neither users and a rate among"),
        ("users,rate,tokens_per_s\n1,2,3\n", "name the one that was varied"),
        ("users,speed\n1,2\n", "has no throughput among its columns"),
        ("users,tokens_per_s\n1,fast\n", "line 2: tokens_per_s is 'fast', not a number"),
        ("users,tokens_per_s\n1,2\n0,2\n", "line 3: has no load above 0"),
        ("users,tokens_per_s\n1,-2\n", "line 2: tokens_per_s is '-2'"),
        ("users,tokens_per_s\n1,\n", "line 2: has no throughput"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ResultFileError, match=message):
        load_table(table(tmp_path, text))


def test_bad_roles_and_columns(tmp_path: Path) -> None:
    path = table(tmp_path, "users,tokens_per_s\n1,2\n")
    with pytest.raises(ResultFileError, match="role 'people' is not known"):
        load_table(path, {"people": "users"})
    with pytest.raises(ResultFileError, match="has no column 'clients'"):
        load_table(path, {"users": "clients"})
    with pytest.raises(ResultFileError, match="there is no such file"):
        load_table(tmp_path / "none.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00users")
    with pytest.raises(ResultFileError, match="cannot be read"):
        load_table(binary)
