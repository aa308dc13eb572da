"""Pages and help texts say the figures that the code has, and no figure stands there unheld."""

from __future__ import annotations

import re

import pytest

from tests.documents.promises import NO_PROMISES, PROMISES
from tests.documents.promises.sentences import (
    FIGURE,
    NoPromise,
    Promise,
    pages,
    promise,
    text_of,
    unheld_figures,
    wrong_in,
)
from tests.documents.promises.units import mode

ROWS = [(page, row) for page, rows in PROMISES.items() for row in rows]


@pytest.mark.parametrize(("page", "row"), ROWS, ids=[f"{page}: {row.words}" for page, row in ROWS])
def test_a_page_says_what_the_code_does(page: str, row: Promise) -> None:
    assert wrong_in(row, page) is None


@pytest.mark.parametrize("page", pages())
def test_each_figure_of_a_page_is_held_or_is_no_promise(page: str) -> None:
    unheld = list(unheld_figures(page, PROMISES.get(page, ()), NO_PROMISES.get(page, ())))
    assert unheld == [], "a row in tests/documents/promises holds it, or says why it is no promise"


def test_what_is_no_promise_is_still_there() -> None:
    gone = [
        (page, row.pattern)
        for page, rows in NO_PROMISES.items()
        for row in rows
        if not re.search(row.pattern, text_of(page))
    ]
    assert gone == []


def test_every_row_is_of_a_page() -> None:
    assert PROMISES.keys() | NO_PROMISES.keys() <= set(pages())


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> str:
    text = "Results come every 10 s; 1,000 files\nin one folder. `wait` takes up to two minutes."
    monkeypatch.setattr(
        "tests.documents.promises.sentences.text_of", lambda _: " ".join(text.split())
    )
    return "docs/page.md"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (promise("come every {} s; {} files in", 10.0, 1000), None),
        (
            promise("come every {} s;", 60.0),
            "docs/page.md: `come every {} s;` says [('10',)], but the code has ('60',)",
        ),
        (promise("within {} s", 10), "docs/page.md has no sentence `within {} s`"),
    ],
)
def test_a_sentence_that_is_gone_or_says_another_figure_is_named(page, row, problem) -> None:
    assert wrong_in(row, page) == problem


def test_texts_of_options_are_read_without_an_import(tmp_path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import tensorflow\n"
        'class Options:\n    epochs: Annotated[int, "how many"] = 26\n    mode: Literal["a", "b"]\n'
        'add("--to", default="here", help="a folder")\nArgumentParser(description="Makes it.")\n'
    )
    assert set(text_of(str(program)).split("; ")) == {"how many", "a folder", "Makes it."}


def test_a_mode_is_read_from_the_function_that_makes_the_file() -> None:
    program = "jobs/host/private.py"
    assert [mode(program, each) for each in ("make_folder", "open_lock")] == ["0700", "0600"]
    with pytest.raises(ValueError, match="not enough values"):
        mode(program, "try_lock")


def test_a_figure_that_no_row_holds_is_named(page) -> None:
    row = promise("come every {} s;", 10)
    (unheld,) = unheld_figures(page, [row], [])
    assert "takes up to two minutes" in unheld
    assert list(unheld_figures(page, [row], [NoPromise(r"up to two minutes", "an example")])) == []


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("every 10 s", True),
        ("may skip (10 by default)", True),
        ("listens on port 6006.", True),
        ("at most a quarter of all steps", True),
        ("| `--warmup-steps` | 1000 | of linear warm-up", True),
        ("| `--momentum`, `--weight-decay` | 0.9, 1e-4 | of SGD", True),
        ("| `--backbone` | `resnet50` | the network", False),
        ("a second one", False),
        ("a half of the page", True),
        ("a support for ports", False),
        ("a file of mode 0600", True),
        ("folders 0700", True),
        ("accuracy 0.0700", False),
        ("the first 100 pictures", True),
        ("the first one goes", False),
        ("`step-<9 digits>-<8 hex digits>/`", True),
        ("six digits of the subscription", True),
        ("blend two pictures", False),
        ("as far as eight requests were on", True),
        ("the table knows some 700", True),
        ("one in 50 grey", True),
        ("most of 500 x 375", True),
        ("holds the rate in 9 of 10 cases", True),
        ("(113 hostile archives in", True),
        ("shows twelve validation pictures", True),
        ("2 to 8 letters of a name", True),
        ("holds at most half of the disk", True),
        ("half to twice of it", True),
        ("of the five surest |", True),
        ("1,442 train, 355 test", False),
        ("Money: under 5 USD.", True),
        ("all under one name", False),
        ("Ubuntu 24.04 with CUDA, Python", True),
        ("| `min_nodes` | 0 | 0 |", True),
        ("| `min_nodes` of all | `max` |", False),
    ],
)
def test_a_figure_is_known(text: str, is_one: bool) -> None:
    assert bool(FIGURE.search(text)) == is_one
