"""Every text file and every command's output is read and written in a named encoding.

Without one, Windows takes cp1252 and a bare container ASCII: λ becomes other signs, or an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from course.paths import ROOT

FOLDERS = ("course", "tests", "docs")
STARTING = {"run", "Popen", "check_output", "check_call", "call"}
NOT_TEXT = {
    "os",
    "tarfile",
    "zipfile",
    "archive",
    "webbrowser",
    "Image",
    "urllib",
    "wheel",
    "again",
}


def unnamed(tree: ast.AST) -> Iterator[int]:
    """The lines of calls that leave the encoding of text to the machine."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and leaves_it_open(node):
            yield node.lineno


def leaves_it_open(call: ast.Call) -> bool:
    function, given = call.func, {word.arg: word.value for word in call.keywords}
    if "encoding" in given or None in given:
        return False
    if isinstance(function, ast.Name):
        name, owner = function.id, ""
    elif isinstance(function, ast.Attribute):
        name = function.attr
        owner = function.value.id if isinstance(function.value, ast.Name) else "a path"
    else:
        return False
    if name == "read_text":
        return not call.args
    if name == "write_text":
        return len(call.args) < 2
    if name == "open" and owner not in NOT_TEXT:
        place = 0 if owner else 1
        mode = given.get("mode", call.args[place] if len(call.args) > place else ast.Constant("r"))
        text = not (isinstance(mode, ast.Constant) and "b" in str(mode.value))
        return text and (owner in ("", "io") or isinstance(mode, ast.Constant))
    if name in ("TemporaryFile", "NamedTemporaryFile"):
        return isinstance(mode := given.get("mode"), ast.Constant) and "b" not in str(mode.value)
    if name in STARTING:
        return any(
            isinstance(given.get(word), ast.Constant) for word in ("text", "universal_newlines")
        )
    return False


def test_every_encoding_is_named() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in unnamed(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == [], 'give encoding="utf-8"'


@pytest.mark.parametrize(
    ("code", "is_open"),
    [
        ("Path('a').read_text()", True),
        ("path.read_text('utf-8')", False),
        ("path.write_text(text)", True),
        ("path.write_text(text, encoding='utf-8')", False),
        ("open('a')", True),
        ("open('a', 'wb')", False),
        ("path.open('w')", True),
        ("path.open('xb')", False),
        ("os.open(lock, flags)", False),
        ("subprocess.run(words, text=True)", True),
        ("subprocess.run(words, text=True, encoding='utf-8')", False),
        ("subprocess.run(words)", False),
        ("NamedTemporaryFile(mode='w')", True),
        ("NamedTemporaryFile()", False),
    ],
)
def test_the_rule_sees_what_it_should(code: str, is_open: bool) -> None:
    assert bool(list(unnamed(ast.parse(code)))) == is_open
