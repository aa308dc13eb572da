"""Parse what selects log lines: ranks and a regular expression."""

from __future__ import annotations

import re

from jobs.contracts.errors import LaunchError


def parse_ranks(text: str, world_size: int) -> list[int]:
    """Parse the ranks that `0,3`, `0-7` or a mixture names, in order.

    Raises LaunchError for what is no rank, or none of this run.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?\s*", part)
        if match is None:
            message = f"`--rank {text}`: `{part}` is not a rank"
            raise LaunchError(message, hint="for example --rank 0,3 or --rank 0-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if max(first, last) >= world_size:
            message = f"`--rank {text}`: the run has the ranks 0 to {world_size - 1}"
            raise LaunchError(message, hint=f"--rank {world_size - 1}")
        ranks.update(range(first, last + 1))
    if not ranks:
        message = f"`--rank {text}` names no rank"
        raise LaunchError(message, hint="for example --rank 0,3 or --rank 0-7")
    return sorted(ranks)


def parse_pattern(text: str | None) -> re.Pattern[str] | None:
    """Compile what `--grep` was given; raises LaunchError for no regular expression."""
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        message = f"`--grep {text}` is not a regular expression: {error}"
        raise LaunchError(
            message, hint="a plain word needs no quoting; put \\ before ( [ * + ?"
        ) from None
