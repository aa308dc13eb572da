"""Word the changes of `pulumi up`, for `launch env check`."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.host import console
from jobs.stacks.changes import Changes, Loss

# The most that are told in one line.
NUM_NAMES = 8
NUM_REASONS = 3


def changes_text(changes: Changes) -> str:
    """Lay out the losses as a table, then name the other changes."""
    parts: list[str] = []
    if changes.losses:
        header = ["NAME", "IN", "KIND", "CHANGE", "STATE", "COSTS"]
        rows = [_loss_row(each) for each in changes.losses]
        if all(each.within is None for each in changes.losses):
            header, *rows = [[cells[0], *cells[2:]] for cells in [header, *rows]]
        parts.append(console.table(header, rows))
    if changes.is_cut_short:
        parts.append("Pulumi stops at protected resources: other changes are unknown")
        return "\n".join(parts)
    if changes.updated:
        parts.append(f"changed in place: {_some(changes.updated, NUM_NAMES)}")
    if changes.created:
        parts.append(f"new: {_some(changes.created, NUM_NAMES)}")
    return "\n".join(parts) or "no resource changes"


def _loss_row(loss: Loss) -> list[str]:
    kind = loss.type.rpartition(":")[2]
    state = _state(loss)
    because = f" ({_some(loss.because, NUM_REASONS)})" if loss.because else ""
    return [loss.name, loss.within or "", kind, loss.change, state, loss.costs + because]


def _state(loss: Loss) -> str:
    if loss.is_protected:
        return "PROTECTED"
    if loss.is_locked:
        return "LOCKED"
    return "allowed" if loss.is_allowed else "REFUSED"


def _some(names: Sequence[str], limit: int) -> str:
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")
