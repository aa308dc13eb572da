"""Replaces the part of a page that a program writes, between its two marks."""

from __future__ import annotations


def put_between(page: str, begin: str, end: str, text: str) -> str:
    """Give the page with `text` as the lines between its marks, each of which it has once."""
    head, _, rest = page.partition(begin)
    _, _, tail = rest.partition(end)
    assert (page.count(begin), rest.count(end)) == (1, 1), f"not once: {begin} and then {end}"
    return f"{head}{begin}\n{text}\n{end}{tail}"
