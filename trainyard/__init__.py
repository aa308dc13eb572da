"""The verbs of `launch` as Python functions, with the same names and words (docs/python.md).

    import trainyard

    run = trainyard.run("digits", stack="local", set={"args.epochs": 3})
    run.wait().state                      # "completed"
    run.report()

A function takes what its verb takes: an argument by place or name, an option by its name
(`--no-weights` is `no_weights=True`). Its value is what the verb's `--json` prints, or the text
where the verb has none; `run` and `rerun` start a run and give a `Run`. Mistakes are LaunchErrors
with `message`, `hint` and `exit_code`. Messages go to the logger `trainyard`, warnings so to stderr.
Nothing is ever asked: where `launch` would ask, `yes=True` agrees.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Verbs that are for a terminal.
_FOR_SHELLS = ("completion", "shell", "ui")
_ERRORS = ("LaunchError", "EnvironmentFailure", "Refused", "NotFound")
_CLASSES = {**dict.fromkeys(_ERRORS, "jobs.contracts.errors"), "Run": "trainyard.one_run"}


def __getattr__(name: str) -> Any:
    """Make a verb's function, a group of them, or a class, when it is first asked for."""
    if name in _CLASSES:
        found = getattr(import_module(_CLASSES[name]), name)
    elif name.startswith("_") or name not in __dir__():
        message = f"module `trainyard` has no `{name}`"
        raise AttributeError(message)
    else:
        from trainyard.verbs import make

        found = make(name.rstrip("_"))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List every verb but those for a shell, and the classes."""
    from keyword import iskeyword

    from jobs.cli import VERBS

    verbs = [f"{name}_" if iskeyword(name) else name for name in VERBS if name not in _FOR_SHELLS]
    return sorted([*verbs, *_CLASSES])
