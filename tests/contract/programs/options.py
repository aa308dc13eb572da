"""Asks programs of an image whether they take arguments, and for their flags; run by the runtime.

Given as JSON: the module and the arguments of each job, and modules. Written into a file as JSON:
"taken" or what is said against it of each job, and of each module the flags that argparse knows
({option: [type, choices, default]}).
"""

import argparse
import contextlib
import importlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.common import options


def main(argv: Sequence[str]) -> int:
    commands, modules = json.loads(argv[0])
    said = {name: _refusal(*command) or "taken" for name, command in commands.items()}
    flags = {module: _flags(module) for module in modules}
    Path(argv[1]).write_text(json.dumps([said, flags]), encoding="utf-8")
    return 0


def _refusal(module: str, *arguments: str) -> str:
    with contextlib.redirect_stderr(io.StringIO()) as refused:
        try:
            options.parse_options(importlib.import_module(module).Options, arguments)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a program does is told
            return f"{error!r} {refused.getvalue()}"
    return ""


def _flags(module: str) -> Mapping[str, Sequence[Any]]:
    made = importlib.import_module(module).Options
    parser = argparse.ArgumentParser()
    hints = options.typing.get_type_hints(made, include_extras=True)
    for field in options.dataclasses.fields(made):
        options._add_flag(parser, field, hints[field.name])
    return {
        action.option_strings[0][2:]: [
            getattr(action.type, "__name__", "choice" if action.choices else "bool"),
            list(action.choices or ()),
            action.default,
        ]
        for action in parser._actions[1:]
    }
