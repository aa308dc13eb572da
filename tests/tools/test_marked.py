"""A page's part between two marks: it alone is replaced, and a mark that is not there is told."""

from __future__ import annotations

import pytest

from tools.marked import put_between

BEGIN, END = "<!-- rows -->", "<!-- end of rows -->"


def test_only_the_part_between_the_marks_is_written() -> None:
    page = f"# Title\n\n{BEGIN}\nold\n{END}\n\nafter\n"
    assert put_between(page, BEGIN, END, "new") == f"# Title\n\n{BEGIN}\nnew\n{END}\n\nafter\n"


@pytest.mark.parametrize(
    "page", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}", f"{BEGIN}{END}{END}"]
)
def test_a_page_without_its_marks_in_turn_and_once_each_is_not_written(page: str) -> None:
    with pytest.raises(AssertionError, match=f"not once: {BEGIN} and then {END}"):
        put_between(page, BEGIN, END, "new")
