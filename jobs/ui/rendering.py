"""Fills the templates of the pages: every value is text in them."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from jobs.ui import words_shown

FOLDER = Path(__file__).parent
# Of a page: its name in the menu, and its address.
MENU = (
    ("Runs", "/runs"),
    ("Jobs", "/jobs"),
    ("Datasets", "/datasets"),
    ("Clusters", "/clusters"),
    ("Environments", "/environments"),
    ("Doctor", "/doctor"),
)


def render(template: str, *, status: int = HTTPStatus.OK, **values: Any) -> Response:
    """Fill a template; every value is text in it."""
    return HTMLResponse(_templates().get_template(template).render(values), status)


def compile_templates() -> None:
    """Compile all templates, which the first page of each would otherwise wait for."""
    for name in _templates().list_templates():
        _templates().get_template(name)


@cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters.update(words_shown.FILTERS)  # pyright: ignore[reportUnknownMemberType]
    made.globals.update(menu=MENU)  # pyright: ignore[reportUnknownMemberType]
    return made
