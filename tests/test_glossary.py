"""One exact definition a term; two notebooks that mean different things by one word confuse."""

from __future__ import annotations

import pytest

from course.glossary import TERMS, glossary


def test_every_term_is_found_by_name_symbol_and_synonym() -> None:
    for term in TERMS:
        for key in (term.name, term.name.upper(), term.symbol, *term.also):
            if key:
                assert glossary(key) is term


def test_no_two_terms_share_a_key() -> None:
    keys = [k for t in TERMS for k in {t.name.lower(), t.symbol.lower(), *t.also} if k]
    assert len(keys) == len(set(keys))


def test_the_table_is_in_order_and_names_its_notebooks() -> None:
    names = [term.name.lower() for term in TERMS]
    assert names == sorted(names)
    assert all(len(term.notebook) == 2 and term.notebook.isdigit() for term in TERMS)


def test_a_typo_names_the_nearest_terms() -> None:
    with pytest.raises(ValueError, match="utilization"):
        glossary("utilizaton")
    with pytest.raises(ValueError, match="not in the glossary"):
        glossary("")


def test_an_entry_reads_as_text_and_as_html() -> None:
    entry = glossary("ρ")
    assert "arrival rate over total service rate" in repr(entry)
    assert "<b>utilization</b>" in entry._repr_html_()
