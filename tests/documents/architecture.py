"""Writes what the imports of jobs/ say into docs/architecture.md.

`python -m tests.documents.architecture` writes the part between the marks anew;
with `--check` it writes nothing and fails where the page differs.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grimp

from tools.marked import put_between

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "architecture.md"
BEGIN = "<!-- rooms: written by tests/documents/architecture.py -->"
END = "<!-- end of rooms -->"
WRITE = ".venv/bin/python -m tests.documents.architecture"

Arrows = Mapping[str, set[str]]


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with the imports; returns the exit code."""
    page = PAGE.read_text(encoding="utf-8")
    written = put_between(page, BEGIN, END, rooms_text(PROJECT))
    if arguments == ["--check"]:
        if page != written:
            print(f"{PAGE.relative_to(PROJECT)} is not what the imports say; {WRITE}")
        return int(page != written)
    PAGE.write_text(written, encoding="utf-8")
    return 0


def rooms_text(project: Path) -> str:
    """Draw the rooms of jobs/, count them, and list what each imports."""
    layers = layers_of(tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8")))
    modules = module_imports()
    arrows = room_arrows(modules)
    rooms = [room for layer in layers for room in layer]
    lines = [
        f"{len(rooms)} rooms on {len(layers)} layers, "
        f"{sum(len(below) for below in arrows.values())} arrows, "
        f"{num_circles(arrows)} circles of rooms, {num_circles(modules)} circles of modules.",
        "",
        "```mermaid",
        "flowchart TD",
        *(f"    {room}" for room in rooms),
        *(f"    {a} --> {b}" for a in rooms for b in rooms if b in needed(arrows).get(a, ())),
        "```",
        "",
        "| room | imports |",
        "| --- | --- |",
        *(f"| `{a}` | {row(b for b in rooms if b in arrows.get(a, ()))} |" for a in rooms),
    ]
    return "\n".join(lines)


def row(rooms: Any) -> str:
    return ", ".join(f"`{room}`" for room in rooms) or "nothing"


def layers_of(settings: Mapping[str, Any]) -> list[list[str]]:
    """Read the layers, top first, from the layers contract of import-linter."""
    contracts = settings["tool"]["importlinter"]["contracts"]
    [rooms] = [each for each in contracts if each.get("containers") == ["jobs"]]
    return [re.split(r" *[|:] *", layer) for layer in rooms["layers"]]


def module_imports() -> Arrows:
    """Read which module of jobs/ imports which, inner imports included, those for types not."""
    graph = grimp.build_graph("jobs", exclude_type_checking_imports=True, cache_dir=None)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def room_arrows(modules: Arrows) -> Arrows:
    """Fold the imports of modules into those of their rooms."""
    arrows: dict[str, set[str]] = {}
    for module, imported in modules.items():
        for other in imported:
            a, b = (name.split(".")[1:2] for name in (module, other))
            if a and b and a != b:
                arrows.setdefault(a[0], set()).add(b[0])
    return arrows


def needed(arrows: Arrows) -> Arrows:
    """Leave out the arrows that a longer way says already."""
    below = {room: reachable(room, arrows) for room in arrows}
    return {
        room: {b for b in direct if not any(b in below.get(c, ()) for c in direct if c != b)}
        for room, direct in arrows.items()
    }


def reachable(start: str, arrows: Arrows) -> set[str]:
    seen: set[str] = set()
    open_ends = [start]
    while open_ends:
        new = arrows.get(open_ends.pop(), set()) - seen
        seen |= new
        open_ends += new
    return seen


def num_circles(arrows: Arrows) -> int:
    """Count the groups whose members import each other, by whatever way."""
    below = {name: reachable(name, arrows) for name in arrows}
    groups = {
        frozenset(other for other in seen if name in below.get(other, ()))
        for name, seen in below.items()
        if name in seen
    }
    return len(groups)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
