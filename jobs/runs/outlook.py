"""Tell how far a run is, and when and at which cost it is likely to end (pure)."""

from __future__ import annotations

from msgspec import Struct

from jobs.host.console import count_text, duration_text, figure_text
from jobs.runs.progress import Progress, Unit

# Between two looks at a run on Azure, results come every 10 s.
_USUAL_GAP_S = 15.0
# Silence of so many usual gaps, and a minute, is worth a word.
_MANY_GAPS = 3


class Outlook(Struct, frozen=True, kw_only=True):
    """Progress of a run with what is left of it; None for what nobody can tell yet.

    `share` is between 0 and 1. `silent_s` is set where nothing was told for longer than usual; the
    time left stands still then.
    """

    done: float
    total: float | None
    unit: Unit
    share: float | None
    left_s: float | None
    samples_per_s: float | None
    updated_s: float
    silent_s: float | None = None


def outlook(progress: Progress, *, now_s: float, is_on: bool) -> Outlook:
    """Look ahead from the progress of a run that `is_on` or over."""
    done, total, pace = progress.done, progress.total, progress.pace
    left_s = silent_s = None
    if is_on:
        gap_s = max(pace.unit_s, pace.pause_s, _USUAL_GAP_S) if pace else _USUAL_GAP_S
        age_s = max(now_s - progress.updated_s, 0.0)
        if age_s > _MANY_GAPS * gap_s + 60:
            silent_s = age_s
        if pace is not None and total is not None:
            left_s = max(pace.left_s(done, total) - min(age_s, gap_s), 0.0)
    return Outlook(
        done=done,
        total=total,
        unit=progress.unit,
        share=done / total if total else None,
        left_s=left_s,
        samples_per_s=progress.samples_per_s,
        updated_s=progress.updated_s,
        silent_s=silent_s,
    )


def share_text(view: Outlook) -> str:
    """Write the part that is done in few letters: `42 %`, or `1200 steps` of an unknown number."""
    if view.share is None:
        return count_text(int(view.done), view.unit)
    # What is not over is not at 100 %.
    return f"{100 * view.share if view.share >= 1 else min(100 * view.share, 99):.0f} %"


def left_text(view: Outlook) -> str:
    """Write the time left in its larger unit or two; empty where it is not known."""
    return "" if view.left_s is None else duration_text(view.left_s)


def progress_text(view: Outlook) -> str:
    """Write progress in a line: `42 %, step 420 of 1,000, about 3 min left, 1,234 samples/s`."""
    parts = [share_text(view)] if view.share is not None else []
    of_total = "" if view.total is None else f" of {view.total:,g}"
    parts.append(f"{view.unit} {view.done:,g}{of_total}")
    if view.left_s is not None:
        parts.append(f"about {left_text(view)} left")
    if view.samples_per_s is not None:
        parts.append(f"{figure_text(view.samples_per_s)} samples/s")
    if view.silent_s is not None:
        parts.append(f"no progress for {duration_text(view.silent_s)}")
    return ", ".join(parts)
