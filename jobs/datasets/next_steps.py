"""Word what to do with a dataset's folder that was just made."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.host import console


def say_made(made: Mapping[str, Any], following: str) -> None:
    """Print the folder that a program made, with its own words and the next steps."""
    console.say(made["text"])
    console.out(made["folder"])
    console.say(following)


def next_steps(folder: Path, name: str | None = None, *, is_packable: bool = False) -> str:
    """Give the commands that pack a folder and send it as a dataset, by default of its name."""
    packing = [_packing(folder)] if is_packable else []
    return console.tree("next", [*packing, _pushing(folder, name or name_of(folder))])


def _packing(folder: Path) -> tuple[str, str]:
    target = folder.with_name(f"{folder.absolute().name}-shards")
    words = ["launch", "data", "pack", str(folder), "--to", str(target)]
    return "pack it", shlex.join(words)


def _pushing(folder: Path, name: str) -> tuple[str, str]:
    return "send it", shlex.join(["launch", "data", "push", str(folder), name])


def name_of(folder: Path) -> str:
    """Name a dataset after its folder."""
    return folder.absolute().name.lower() or "dataset"
