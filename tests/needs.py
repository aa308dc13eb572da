"""What tests need of set-up: a lack is a failure of the environment, in one line, never a skip."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs.contracts.errors import LaunchError
from jobs.images.runtimes import PROJECT, require_python, runtime_python

TOOLS = PROJECT / ".trainyard" / "tools.json"


@contextmanager
def whole_environment() -> Iterator[None]:
    """Name what this machine lacks where an index is out of reach, or set-up was not run."""
    try:
        yield
    except LaunchError as error:
        hint = f"; hint: {error.hint}" if error.hint else ""
        pytest.fail(f"the environment of the tests: {error.message}{hint}", pytrace=False)


def tools_of_set_up() -> dict[str, Any]:
    """Where set-up has noted Node, Azurite and the like to be."""
    if not TOOLS.exists():
        pytest.fail("the environment of the tests: no Azurite; hint: make setup", pytrace=False)
    return json.loads(TOOLS.read_text(encoding="utf-8"))


def runtime(image: str) -> Path:
    """Give the interpreter of an image's runtime; skips where no Python of ours can have it."""
    try:
        require_python(image)
    except LaunchError as error:
        pytest.skip(error.message)
    with whole_environment():
        return runtime_python(image, PROJECT)
