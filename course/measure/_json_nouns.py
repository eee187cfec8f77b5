"""Turns frozen dataclasses into JSON values and back, strictly; which nouns there are is not known.

A field may be text, a whole or finite number, yes or no, a mapping from text to numbers, a tuple of
these or of further dataclasses, a dataclass, or one of these or null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Noun = TypeVar("Noun", bound="DataclassInstance")


class RecordError(ValueError):
    """A file with a measuring run is missing or damaged; the message says where and what."""


def noun_to_json(noun: DataclassInstance) -> dict[str, Any]:
    """Return the dataclass's fields as values that `json.dumps` takes."""
    return {item.name: _to_json(getattr(noun, item.name)) for item in fields(noun)}


def _to_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return noun_to_json(value)
    if isinstance(value, Mapping):
        return {key: _to_json(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_to_json(inner) for inner in value]
    return value


def noun_from_json(noun: type[Noun], value: object, place: str) -> Noun:
    """Return `value`, read from JSON, as a `noun`; `place` is how messages call it.

    Raises RecordError for a field that is missing, unknown or of the wrong kind, and where the
    noun itself refuses its values.
    """
    if not isinstance(value, dict):
        raise RecordError(f"{place} is {_short(value)}, not an object")
    hints = get_type_hints(noun)
    names = [item.name for item in fields(noun)]
    unknown = [name for name in value if name not in names]
    if unknown:
        raise RecordError(f"{place}.{unknown[0]} is not known; {noun.__name__} has {names}")
    read: dict[str, Any] = {}
    for item in fields(noun):
        if item.name in value:
            where = f"{place}.{item.name}"
            read[item.name] = _from_json(hints[item.name], value[item.name], where)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise RecordError(f"{place}.{item.name} is missing")
    try:
        return noun(**read)
    except RecordError:
        raise
    except ValueError as error:
        raise RecordError(f"{place}: {error}") from None


def _from_json(hint: Any, value: object, place: str) -> Any:
    """Return `value` as the type `hint` says, or raise RecordError."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None:
            return None
        return _from_json(next(kind for kind in inside if kind is not NoneType), value, place)
    if origin is tuple:
        if not isinstance(value, list):
            raise RecordError(f"{place} is {_short(value)}, not a list")
        return tuple(_from_json(inside[0], one, f"{place}[{i}]") for i, one in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise RecordError(f"{place} is {_short(value)}, not an object")
        return {key: _from_json(inside[1], one, f"{place}.{key}") for key, one in value.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        return noun_from_json(hint, value, place)
    return _scalar(hint, value, place)


def _scalar(hint: type, value: object, place: str) -> Any:
    words = {str: "text", bool: "true or false", int: "a whole number", float: "a finite number"}
    good = type(value) is hint or (hint is float and type(value) is int)
    if good and isinstance(value, float):
        good = math.isfinite(value)
    if not good:
        raise RecordError(f"{place} is {_short(value)}, not {words[hint]}")
    try:
        return hint(value)
    except OverflowError:
        raise RecordError(f"{place} is too large a number") from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
