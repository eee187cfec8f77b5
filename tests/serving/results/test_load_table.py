"""A reader's own table of loads: units, names and the line of what is wrong."""

from __future__ import annotations

import contextlib
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.serving.files.errors import ResultFileError
from course.serving.load import table as reader
from course.serving.load.table import is_table, load_table


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("users;tokens_per_s\n1;2,5\n", "is separated by semicolons; save it separated by commas"),
        ("sep=;\nusers;tokens_per_s\n", "is separated by semicolons"),
        ("users\ttokens_per_s\n1\t2\n", "is separated by tabs"),
        ("users,tokens_per_s\n1,2,5\n", "line 2: has 3 cells, but the header names 2 columns"),
        ('users,tokens_per_s\n1,"2\n2,3\n', "is no table of commas: unexpected end of data"),
        ('users,tokens_per_s\n1,"2\n3,"4\n', "line 3: is no table of commas"),
        ('users,tokens_per_s\n1,"2\n3"\n', "line 3: tokens_per_s is '2 3', not a number"),
        ("users,tokens_per_s,note, note\n1,2,,\n", "names the column 'note' twice"),
        ("users,tok_s,Users\n1,2,3\n", "has the columns 'users' and 'Users', both users"),
        (
            "users,tok_s,p99_ttft_ms,p99_ttft_s\n1,2,3,4\n",
            "has the columns 'p99_ttft_ms' and 'p99_ttft_s', both P99 TTFT; take one out",
        ),
        ("users,tok_s,median_ttft,ttft_p50_ms\n1,2,3,4\n", "both median TTFT"),
        ("users,tok_s,p999_ttft\n1,2,3\n", "'p999_ttft': 'p999' is no statistic; give P99, P99.9"),
        ("users,tok_s\n1e308,2\n", "line 2: users is '1e308', too large to be meant"),
        ("users,tok_s\n1e-320,2\n", "line 2: users is '1e-320', too small to be meant"),
        ("users,tok_s\n1,1.7e308\n", "line 2: tok_s is '1.7e308', too large to be meant"),
        ("users,tok_s\n1,inf\n", "line 2: tok_s is 'inf', not a number"),
        ("u\0s\0e\0r\0s\0,\0\n", "line 1: holds NUL characters: it is UTF-16 text or no text"),
        (f"users,tok_s,name\n1,2,{'n' * 201}\n", "has a name of more than 200 characters"),
    ],
)
def test_what_could_mean_two_things_is_named(tmp_path: Path, text: str, message: str) -> None:
    """A table that another program wrote is read as other numbers than it shows, without a word."""
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
    with pytest.raises(ResultFileError, match="is UTF-16 text; save it as UTF-8"):
        load_table(binary)


def test_the_column_that_was_named_is_the_load(tmp_path: Path) -> None:
    """The error that asks for rate=COLUMN comes again when it is given."""
    path = table(tmp_path, "users,request_rate,output_tokens_per_s\n1,10,99\n")
    (rate,) = load_table(path, {"rate": "request_rate"})
    (users,) = load_table(path, {"Users": "users"})
    assert (rate.unit, rate.load, users.unit, users.load) == ("requests/s", 10, "users", 1)


def test_one_column_has_one_meaning(tmp_path: Path) -> None:
    """A throughput is drawn over itself, or one of two latencies is dropped silently."""
    path = table(tmp_path, "users,tok_s,w,v\n1,10,99,98\n")
    with pytest.raises(ResultFileError, match="'tok_s' is named as users and as tokens"):
        load_table(path, {"users": "tok_s", "tokens": "tok_s"})
    with pytest.raises(ResultFileError, match="two columns are named as P99 TTFT"):
        load_table(path, {"p99_ttft": "w", "ttft_p99.0_ms": "v"})


def test_the_named_latency_wins(tmp_path: Path) -> None:
    path = table(tmp_path, "users,tok_s,p99_ttft_ms,p99_ttft_s,P99.0_itl\n1,10,7000,8,3\n")
    (row,) = load_table(path, {"p99_ttft_s": "p99_ttft_s"})
    assert row.latencies == {"P99 TTFT": 8.0, "P99 ITL": 3.0}


def test_names_are_fit_to_be_shown(tmp_path: Path) -> None:
    """A name takes over the reader's terminal, or makes a picture that no program opens."""
    text = "users,tok_s,name\n1,10,a\x1b[31m\x07b\n2,10,\x1b\n"
    assert [row.group for row in load_table(table(tmp_path, text))] == ["a [31m b", "our sweep"]
    odd = tmp_path / "odd\x1b\udcff.csv"
    odd.write_text("users,tok_s\n1,10\n", encoding="utf-8")
    assert load_table(odd)[0].group.isprintable()


def test_lines_of_other_systems(tmp_path: Path) -> None:
    """A table from another system, or with what a spreadsheet leaves behind, is not read."""
    text = "users, tok_s ,,\n1,10,,\n,,,\n\n2,20\n"
    for end in ("\n", "\r\n", "\r"):
        path = tmp_path / "ends.csv"
        path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", end).encode())
        rows = load_table(path)
        assert [(row.load, row.output_tokens_per_s) for row in rows] == [(1, 10), (2, 20)]
        assert rows[1].place == "line 5"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.txt", "users,tok_s\n1,2\n", True),
        ("a.tsv", "\ufeffusers\ttok_s\n1\t2\n", True),
        ("a", "users;tok_s\n1;2\n", True),
        ("a.txt", '{"a": 1, "b": 2}\n', False),
        ("a.txt", "[1, 2]\n", False),
        ("a.txt", "<html>, not a table\n", False),
        ("a.json", "users,tok_s\n", False),
        ("a.csv", "{}", True),
    ],
)
def test_a_table_by_another_name(tmp_path: Path, name: str, text: str, expected: bool) -> None:
    """A table saved as .txt is refused as a broken result file."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert is_table(path) is expected
    assert not is_table(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("byte", [b"\0", b"a", b",", b'"', b"\r", b"1,"])
def test_endless_lines_are_refused_early(tmp_path: Path, byte: bytes) -> None:
    """A file of gigabytes without a line end is taken into memory before it is refused."""
    path = tmp_path / "endless.csv"
    path.write_bytes(b"users,tok_s\n1," + byte * (40 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(ResultFileError):
            load_table(path)
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()


def test_memory_that_runs_out_is_an_error_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(reader, "_rows", too_much)
    with pytest.raises(ResultFileError, match="does not fit into memory"):
        load_table(table(tmp_path, "users,tok_s\n1,2\n"))
    monkeypatch.undo()


@given(st.binary(max_size=200) | st.text('users,tok_s\n\r"1;e-.\t\0', max_size=80).map(str.encode))
def test_any_bytes_are_a_table_or_an_error(data: bytes) -> None:
    """A reader's broken file ends in a traceback."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.csv"
        for head in (b"", b"users,tok_s\n"):
            path.write_bytes(head + data)
            with contextlib.suppress(ResultFileError):
                assert load_table(path)
