"""Writes the signatures of `import trainyard` into trainyard/__init__.pyi, for editors and checkers.

`python -m tests.documents.python_stub` writes it; a test holds it to the verbs of `launch`.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trainyard
from tests.documents.value_types import Types

STUB = Path(trainyard.__file__).with_suffix(".pyi")
WRITE = ".venv/bin/python -m tests.documents.python_stub"
HEAD = '''"""Written by tests/documents/python_stub.py: the functions are those of `launch` (docs/python.md)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from jobs.contracts.errors import EnvironmentFailure as EnvironmentFailure
from jobs.contracts.errors import LaunchError as LaunchError
from jobs.contracts.errors import NotFound as NotFound
from jobs.contracts.errors import Refused as Refused
from trainyard.one_run import Run as Run

Text = str | int | float | Path
'''


def stub_text() -> str:
    """Give the whole file."""
    parts: list[str] = []
    values = Types()
    for name in dir(trainyard):
        found = getattr(trainyard, name)
        if isinstance(found, SimpleNamespace):
            methods = [
                _function(each, function, values.of(f"{name} {each}"), is_method=True)
                for each, function in vars(found).items()
            ]
            parts.append("\n".join([f"class {name}:", *methods]))
        elif not isinstance(found, type):
            value = "Run" if name in ("run", "rerun") else values.of(name)
            parts.append(_function(name, found, value))
    return "\n".join([HEAD, values.text(), *parts])


def _function(name: str, function: Any, value: str, *, is_method: bool = False) -> str:
    signature = inspect.signature(function)
    given = [
        f"{each.name}: {each.annotation}" + ("" if each.default is each.empty else " = ...")
        for each in signature.parameters.values()
        if each.kind is not each.KEYWORD_ONLY
    ]
    named = [
        f"{each.name}: {each.annotation}" + ("" if each.default is each.empty else " = ...")
        for each in signature.parameters.values()
        if each.kind is each.KEYWORD_ONLY
    ]
    words = [*given, *(["*", *named] if named else [])]
    about = function.__doc__.partition("\n")[0]
    taken = [f"def {name}(", *(f"    {each}," for each in words), f") -> {value}:"]
    lines = [
        *(["@staticmethod"] if is_method else []),
        *(taken if words else ["".join(taken)]),
        f'    """{about}"""',
    ]
    return "\n".join(f"    {line}" if is_method else line for line in lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(stub_text(), encoding="utf-8")
