"""Read of TensorBoard's event files what needs no TensorBoard."""

from __future__ import annotations

from pathlib import Path

# The message `session_log` (field 7) of an event, with the status START.
START = b"\x3a\x02\x08\x01"


def drop_later_steps(folder: Path) -> list[bool]:
    """Tell of each event file below, in the order of reading, whether it drops steps of those before it."""
    files = sorted(folder.rglob("events.out.tfevents.*"))
    return [START in file.read_bytes() for file in files]
