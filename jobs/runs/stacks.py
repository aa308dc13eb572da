"""Group the Python stacks of a run's ranks, and write them for people (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

_THREAD = re.compile(
    r"^(Current thread|Thread) 0x[0-9a-f]+ (?:\[(?P<name>[^\]]*)\] )?\(most recent"
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)')


class Frame(Struct, frozen=True, kw_only=True):
    """A function that was called, and the line it is at."""

    function: str
    file: str
    line: int


class Thread(Struct, frozen=True, kw_only=True):
    """A thread of a rank; its frames begin with the innermost. `is_active`: it uses a core."""

    name: str
    is_main: bool
    is_active: bool
    frames: tuple[Frame, ...]


class RankGroup(Struct, frozen=True, kw_only=True):
    """Ranks whose main threads stand at the same place; `threads` are those of the first one."""

    ranks: tuple[int, ...]
    threads: tuple[Thread, ...]


class Stacks(Struct, frozen=True, kw_only=True):
    """All ranks' stacks, the largest group first, and why some have none.

    `is_recorded`: they were written when the run was ended for a hang, and are not of now.
    """

    groups: tuple[RankGroup, ...]
    without: dict[int, str]
    is_recorded: bool = False


def grouped(
    ranks: Mapping[int, Sequence[Thread]], without: Mapping[int, str], *, is_recorded: bool = False
) -> Stacks:
    """Group ranks by the frames of their main threads."""
    found: dict[tuple[Frame, ...], list[int]] = {}
    for rank in sorted(ranks):
        main = next((each.frames for each in ranks[rank] if each.is_main), ())
        found.setdefault(main, []).append(rank)
    groups = [
        RankGroup(ranks=tuple(each), threads=tuple(_main_first(ranks[each[0]])))
        for each in found.values()
    ]
    groups.sort(key=lambda each: (-len(each.ranks), each.ranks))
    return Stacks(groups=tuple(groups), without=dict(without), is_recorded=is_recorded)


def parse_traceback(text: str) -> tuple[Thread, ...]:
    """Read the threads that faulthandler wrote, main thread last; empty for another text."""
    heads: list[str] = []
    frames: list[list[Frame]] = []
    for line in text.splitlines():
        if head := _THREAD.match(line):
            heads.append(head["name"] or "")
            frames.append([])
        elif frames and (found := _FRAME.fullmatch(line)):
            frames[-1].append(
                Frame(function=found["function"], file=found["file"], line=int(found["line"][:9]))
            )
    last = len(heads) - 1
    threads = [
        Thread(
            name=name or ("MainThread" if at == last else ""),
            is_main=at == last,
            is_active=False,
            frames=tuple(each),
        )
        for at, (name, each) in enumerate(zip(heads, frames, strict=True))
    ]
    return tuple(_main_first(threads))


def stacks_text(stacks: Stacks, *, has_all_threads: bool) -> str:
    """Write a block a group: its ranks, then a line a frame, the innermost first."""
    lines: list[str] = []
    for group in stacks.groups:
        shown = group.threads if has_all_threads else group.threads[:1]
        lines.append(f"{ranks_text(group.ranks)}:")
        for thread in shown:
            if not thread.is_main:
                lines.append(f"  thread {thread.name or 'without a name'}:")
            indent = "  " if thread.is_main else "    "
            width = max((len(each.function) for each in thread.frames), default=0)
            lines += [
                f"{indent}{each.function:<{min(width, 40)}}  {_shown(each.file)}:{each.line}"
                for each in thread.frames
            ] or [f"{indent}no Python frame"]
        hidden = len(group.threads) - len(shown)
        if hidden:
            lines.append(f"  {hidden} more thread{'s' if hidden > 1 else ''}: --threads")
        lines.append("")
    for rank, why in sorted(stacks.without.items()):
        lines.append(f"rank {rank}: {why}")
    return "\n".join(lines).rstrip("\n")


def _shown(file: str) -> str:
    """Shorten the path of a library to what its reader knows it by."""
    return file.rpartition("/site-packages/")[2]


def ranks_text(ranks: Sequence[int]) -> str:
    """Write ranks in order as ranges: `rank 3`, `ranks 0-6, 8 (8 of them)`."""
    spans: list[list[int]] = []
    for each in ranks:
        if spans and each == spans[-1][-1] + 1:
            spans[-1][1:] = [each]
        else:
            spans.append([each])
    parts = ["-".join(map(str, each)) for each in spans]
    if len(ranks) == 1:
        return f"rank {parts[0]}"
    return f"ranks {', '.join(parts)} ({len(ranks)} of them)"


def _main_first(threads: Sequence[Thread]) -> list[Thread]:
    return sorted(threads, key=lambda each: not each.is_main)
