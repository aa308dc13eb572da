"""Counts the rooms of jobs/ that one command passes: `python -m tests.documents.trace run JOB -d`.

The words are those of `launch`. Every call from one room into another is an arrow; a call into a room
that stands above the caller's would be a way back. What the command starts as a process is not seen.
"""

from __future__ import annotations

import sys
import tomllib
from types import FrameType

from tests.documents.architecture import PROJECT, layers_of

Arrow = tuple[str, str]


def main(words: list[str]) -> int:
    """Run `launch` with these words, then print what it passed; returns its exit code."""
    arrows: dict[Arrow, str] = {}
    sys.setprofile(lambda frame, event, _: note(frame, arrows) if event == "call" else None)
    from jobs.cli import main as launch

    try:
        code = launch(words)
    finally:
        sys.setprofile(None)
    layers = layers_of(tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8")))
    above = {room: number for number, layer in enumerate(layers) for room in layer}
    up = [(arrow, call) for arrow, call in arrows.items() if above[arrow[1]] < above[arrow[0]]]
    rooms = {room for arrow in arrows for room in arrow}
    print(f"{len(rooms)} rooms, {len(arrows)} arrows, {len(up)} upward", file=sys.stderr)
    for (a, b), call in up:
        print(f"  {a} -> {b}: {call}", file=sys.stderr)
    return code


def note(frame: FrameType, arrows: dict[Arrow, str]) -> None:
    """Note the arrow of a call from the nearest caller in another room."""
    if frame.f_code.co_name == "<module>" or (into := room_of(frame)) is None:
        return
    caller = frame.f_back
    while caller is not None and room_of(caller) is None:
        caller = caller.f_back
    if caller is not None and (out_of := room_of(caller)) and out_of != into:
        arrows.setdefault((out_of, into), f"{caller.f_code.co_name} calls {frame.f_code.co_name}")


def room_of(frame: FrameType) -> str | None:
    island, _, rest = str(frame.f_globals.get("__name__", "")).partition(".")
    return rest.partition(".")[0] or None if island == "jobs" else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
