"""What an exercise, a wrong answer and a verdict are; judging, cards and progress live elsewhere.

An exercise is built with the constructors in `course.exercises.build`; everything else reads the
nouns below.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

Track = Literal["warm-up", "core", "stretch"]
Kind = Literal["compute", "audit", "predict", "policy", "configure", "choice"]
Status = Literal["passed", "failed", "todo"]

TIME_LIMIT_S = 5.0
LEAST_WRONG_ANSWERS = 3
LEAST_HINTS = 2

# What the first cell of every notebook brings: a reference or wrong answer may use these names
# and nothing else from outside its own body.
PREAMBLE = (
    "import math\nimport numpy as np\nfrom course import TODO, check, hint, progress, queueing\n"
)

KIND_WORDS: Mapping[Kind, str] = {
    "compute": "compute it from raw data",
    "audit": "audit a printed claim",
    "predict": "predict, then simulate",
    "policy": "write a policy",
    "configure": "choose a configuration",
    "choice": "explain by choosing",
}

_ID = re.compile(r"\d{1,2}\.[1-9]")
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Placeholder:
    """The value a stub returns; `check` reads it as "not tried yet".

    >>> TODO
    TODO
    """

    def __repr__(self) -> str:
        return "TODO"

    def __copy__(self) -> Placeholder:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Placeholder:
        return self

    def __reduce__(self) -> str:
        return "TODO"


TODO = Placeholder()

NO_ANSWER = ""
"""Fingerprint of what was tried but is no answer: a crash, a wrong type, an endless loop."""


class Unacceptable(Exception):
    """Raised by an exercise's own code when an answer cannot be used; its text is the sentence.

    >>> raise Unacceptable("Your policy returned 'yes'; it must return True or False.")
    Traceback (most recent call last):
    ...
    course.exercises.definition.Unacceptable: Your policy returned 'yes'; it must return True or...
    """


@dataclass(frozen=True)
class Verdict:
    """What judging one answer found.

    `message` is a plain sentence; `facts` are (label, value) rows that put the measured value
    beside the kind expected; `fingerprint` tells two different answers apart by what they do;
    `printed` is what the student's code wrote while it was judged.
    """

    status: Status
    message: str
    misconception: str | None = None
    fingerprint: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    printed: str = ""


class Judge(Protocol):
    """Judges an answer with draws from `rng`, inside `limit_s` seconds; never raises for it."""

    def __call__(self, answer: object, rng: np.random.Generator, limit_s: float) -> Verdict:
        """The verdict on `answer`."""
        ...


@dataclass(frozen=True)
class Wrong:
    """A wrong answer that people really give, and the hint it must draw.

    `answer` is a function (or a value, where the answer is one). `misconception` is a short
    name in kebab case, `hint` the sentences shown to whoever gives it. Where the answer is a
    value, `also(value)` widens the match to its neighbours.
    """

    misconception: str
    answer: Any
    hint: str
    also: Callable[[Any], bool] | None = None

    def __post_init__(self) -> None:
        if not _SLUG.fullmatch(self.misconception):
            raise ValueError(
                f"misconception is {self.misconception!r}; give a name in kebab case, "
                'such as "mean-for-p99"'
            )
        if not self.hint.strip():
            raise ValueError(f"the hint of {self.misconception!r} is empty; write what it draws")


@dataclass(frozen=True)
class Exercise:
    """One exercise: its question, its stub, its reference, its wrong answers and its judge.

    `answer_name` is the name that the answer cell binds and the check cell passes on;
    `hints` are general ones, shown one at a time; `explanation` stands beside the reference.
    Raises ValueError for an id that is not "chapter.number", for fewer than three wrong answers
    or two hints, and for two wrong answers of one misconception.
    """

    id: str
    title: str
    question: str
    kind: Kind
    minutes: int
    difficulty: Literal[1, 2, 3]
    answer_name: str
    stub: str
    reference: Any
    wrong: tuple[Wrong, ...]
    hints: tuple[str, ...]
    judge: Judge
    explanation: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    time_limit_s: float = TIME_LIMIT_S

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ValueError(f'exercise id is {self.id!r}; give chapter and number, as in "2.3"')
        if not self.answer_name.isidentifier():
            raise ValueError(f"exercise {self.id}: {self.answer_name!r} is not a Python name")
        names = [wrong.misconception for wrong in self.wrong]
        if len(names) < LEAST_WRONG_ANSWERS or len(set(names)) < len(names):
            raise ValueError(
                f"exercise {self.id} has the wrong answers {names}; give at least "
                f"{LEAST_WRONG_ANSWERS}, each with a misconception of its own"
            )
        if len(self.hints) < LEAST_HINTS:
            raise ValueError(
                f"exercise {self.id} has {len(self.hints)} hints; give at least {LEAST_HINTS}, "
                "from a nudge to nearly the answer"
            )
        if self.minutes < 1:
            raise ValueError(f"exercise {self.id}: minutes is {self.minutes}; give at least 1")

    @property
    def chapter(self) -> int:
        """The number of the notebook that the exercise belongs to."""
        return int(self.id.partition(".")[0])

    @property
    def track(self) -> Track:
        """What a lesson asks of everybody: its first four, after the warm-ups of lesson 0."""
        if self.chapter == 0:
            return "warm-up"
        return "core" if int(self.id.partition(".")[2]) <= 4 else "stretch"

    @property
    def cell_suffix(self) -> str:
        """The id as it stands in cell ids: "2-3"."""
        return self.id.replace(".", "-")

    @property
    def check_source(self) -> str:
        """The canonical text of the check cell."""
        return f'check("{self.id}", {self.answer_name})'

    @property
    def markdown(self) -> str:
        """The question cell's text: heading, what kind and how long, question, options."""
        stars = "●" * self.difficulty + "○" * (3 - self.difficulty)
        about = (
            f"*{self.track} · {KIND_WORDS[self.kind]} · {self.minutes} min · difficulty {stars}*"
        )
        parts = [f"### Exercise {self.id}: {self.title}", about, self.question]
        if self.options:
            parts.append("\n".join(f"- **{key}** {text}" for key, text in self.options.items()))
        return "\n\n".join(parts)

    def hint_of(self, misconception: str | None) -> str | None:
        """The hint that a misconception draws; None for a name that is not of this exercise."""
        for wrong in self.wrong:
            if wrong.misconception == misconception:
                return wrong.hint
        return None

    @property
    def reference_source(self) -> str:
        """The reference as text that can stand in the answer cell."""
        return source_of(self.reference, self.answer_name)


def source_of(answer: object, name: str) -> str:
    """An answer as the text of a cell that binds `name` to it.

    A function's own source, followed by `name = other_name` where it is called otherwise; any
    other value as a literal.

    >>> print(source_of(("b", 3), "answer_2_4"), end="")
    answer_2_4 = ('b', 3)
    """
    if not inspect.isfunction(answer):
        return f"{name} = {answer!r}\n"
    source = textwrap.dedent(inspect.getsource(answer)).rstrip() + "\n"
    if answer.__name__ == name:
        return source
    return f"{source}\n\n{name} = {answer.__name__}\n"


def stub_of(reference: Callable[..., Any]) -> str:
    """The stub that a reference leaves to the student: its signature and docstring, then TODO.

    Raises ValueError for a function without a docstring, since the stub must say its units.
    """
    source = textwrap.dedent(inspect.getsource(reference))
    node = ast.parse(source).body[0]
    if not isinstance(node, ast.FunctionDef) or ast.get_docstring(node) is None:
        raise ValueError(
            f"{reference.__name__} cannot give a stub: write it as a plain function whose "
            "docstring says what it returns, in which unit"
        )
    last_line = node.body[0].end_lineno
    head = source.splitlines()[node.lineno - 1 : last_line]
    return "\n".join([*head, "    return TODO", ""])
