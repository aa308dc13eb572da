"""Structs are read field by field: every mistake with its path, rules where their keys are right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

import pytest
from msgspec import Meta, Struct

from infra.models import Problem, Rule, Wrong, checked, read_model, text


def _shout(value: str, given: object) -> str | Wrong:
    return value.upper() if value != "quiet" else Wrong("is quiet")


def _in_order(low: int, high: int) -> Iterator[Problem]:
    if low > high:
        yield "low", f"{low} is above {high}"


class Inner(Struct, frozen=True, kw_only=True):
    low: Annotated[int, Meta(ge=0, le=9)]
    high: Annotated[int, Meta(ge=0, le=9)] = 5
    rules: ClassVar[tuple[Rule, ...]] = (_in_order,)


class Outer(Struct, frozen=True, kw_only=True):
    word: Annotated[str, checked(_shout)]
    inner: Inner
    names: tuple[Annotated[str, text("[a-z]+", "name")], ...] = ()
    words: tuple[Annotated[str, checked(_shout)], ...] = ()
    either: Annotated[str, text("[0-9]", "digit")] | dict[str, bool] | None = None
    given_one: int


def read(values: object) -> tuple[Outer | None, list[str]]:
    problems: list[str] = []
    return read_model(Outer, values, {"given_one": 7}, problems), problems  # type: ignore[arg-type]


def test_good_values_become_structs_with_their_defaults_and_what_is_given():
    assert read({"word": "loud", "inner": {"low": 5}, "names": ["a", "b"]}) == (
        Outer(word="LOUD", inner=Inner(low=5, high=5), names=("a", "b"), given_one=7),
        [],
    )
    good = {
        "word": "x",
        "inner": {"low": 0, "high": 9},
        "either": {"a": True},
        "words": ["loud", "louder"],
    }
    found, _ = read(good)
    assert found is not None
    assert (found.inner, found.either, found.words) == (
        Inner(low=0, high=9),
        {"a": True},
        ("LOUD", "LOUDER"),
    )


@pytest.mark.parametrize(
    ("values", "problems"),
    [
        ({"word": "quiet", "inner": {"low": 6}}, ["word: is quiet", "inner.low: 6 is above 5"]),
        ({"word": "x", "inner": {"low": True}}, ["inner.low: true is not a whole number"]),
        # A rule is silent where one of its keys is wrong by itself.
        ({"word": "x", "inner": {"low": 6, "high": 12}}, ["inner.high: 12 is not between 0 and 9"]),
        ({"word": "", "inner": []}, ["word: is empty", "inner: [] is not a mapping"]),
        (
            {"word": "x", "inner": {"low": 1}, "names": ["a", 2, "a", "A"]},
            [
                "names[1]: 2 is not a valid name",
                'names[2]: "a" is there twice',
                'names[3]: "A" is not a valid name',
                'names[3]: "A" is there twice',
            ],
        ),
        ({"word": "x", "inner": {"low": 1}, "either": "x"}, ['either: "x" is not a valid digit']),
        (
            {"word": "x", "inner": {"low": 1}, "either": {"a": 1}},
            ["either.a: 1 is not true or false"],
        ),
        (
            {"word": "x", "inner": {"low": 1}, "either": {"": True}},
            ["either.: is not a valid key"],
        ),
        # What is given is nobody's to set.
        (
            {"word": "x", "inner": {"low": 1}, "given_one": 3},
            ["given_one: unknown key, known: either, inner, names, word, words"],
        ),
        ({"word": None, "inner": {}}, ["word: is missing", "inner.low: is missing"]),
    ],
)
def test_every_mistake_is_told_with_its_path(values, problems):
    assert read(values) == (None, [f"trainyard:{problem}" for problem in problems])


def test_a_rule_about_a_key_that_is_not_there_is_our_own_mistake():
    class Odd(Struct, kw_only=True):
        low: int = 1
        rules: ClassVar[tuple[Rule, ...]] = (_in_order,)

    with pytest.raises(AssertionError, match="_in_order"):
        read_model(Odd, {}, {}, [])
