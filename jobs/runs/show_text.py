"""Lay out a run's state, attempts, ranks and figures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from jobs.contracts.spec import RankError, RunRecord, RunState, RunStatus
from jobs.host import console
from jobs.host.untrusted import read_json
from jobs.jobfile.resolve import size_text
from jobs.runs.checkpoints import Checkpoint
from jobs.runs.failure import RankReport, signal_name
from jobs.runs.figures import Figure, value_text
from jobs.runs.outcome import COLOURS, AttemptBrief, reason, run_time_s


def read_ranks(run_dir: Path) -> list[RankReport]:
    """Read the report that each rank left, in order; none while they have not started."""
    ranks: list[RankReport] = []
    for path in sorted(run_dir.glob("ranks/*.json")):
        try:
            ranks.append(read_json(path, RankReport))
        except (OSError, msgspec.DecodeError):
            continue
    return ranks


def as_json(
    status: RunStatus,
    record: RunRecord,
    error: RankError | None,
    ranks: list[RankReport],
    figures: Sequence[Figure],
) -> dict[str, Any]:
    """Give the run as `--json` prints it."""
    return {
        **msgspec.to_builtins(status),
        "error": error,
        "ranks": ranks,
        "metrics": [_figure_fields(each) for each in figures],
        "record": record,
    }


def _figure_fields(figure: Figure) -> dict[str, Any]:
    return {
        "split": figure.split,
        "name": figure.name,
        figure.axis: figure.last_at,
        "value": figure.last,
        "goal": figure.goal,
        "best": figure.best,
        "best_at": figure.best_at,
    }


def status_text(
    status: RunStatus,
    record: RunRecord,
    error: RankError | None,
    told: Sequence[tuple[str, str]],
) -> str:
    """Lay out the run's facts, one a line, then its figures and places."""
    spec = record.plan.spec
    length = run_time_s(status)
    commit = ""
    if record.git is not None:
        commit = record.git.commit[:12] + (" and changes" if record.git.dirty_diff else "")
    resume = spec.resume
    pairs = [
        ("run", status.id),
        ("name", status.name),
        ("state", console.styled(status.state.value, COLOURS[status.state], "bold")),
        ("reason", reason(status, error)),
        ("exit code", "" if status.exit_code is None else str(status.exit_code)),
        ("cluster", f"{status.cluster} of stack {status.stack}"),
        ("size", size_text(spec.nodes, spec.processes_per_node)),
        ("image", _image_text(spec.image, record.image_digest)),
        ("command", shlex.join(spec.command)),
        ("inputs", ", ".join(_inputs(record))),
        ("resumed from", f"{resume.run} at step {resume.step}" if resume else ""),
        ("commit", commit),
        ("created", status.created),
        ("started", status.started or ""),
        ("ended", status.ended or ""),
        ("ran for", "" if length is None else console.duration_text(length)),
        *told,
    ]
    return console.fields([pair for pair in pairs if pair[1]])


def _image_text(image: str, digest: str | None) -> str:
    is_pinned = digest is None or image.endswith(digest)
    return image if is_pinned else f"{image} {digest}"


def _inputs(record: RunRecord) -> list[str]:
    inputs = record.plan.spec.inputs
    return [f"{name} = {each.dataset.ref}" for name, each in inputs.items()]


def checkpoints_text(status: RunStatus, checkpoints: Sequence[Checkpoint], stack: list[str]) -> str:
    """Word the newest checkpoint and the command that continues from it; there is at least one."""
    newest = checkpoints[0]
    told = [f"step {newest.step}", console.size_text(newest.bytes)]
    if newest.saved:
        told.append(f"saved {newest.saved}")
    pairs = [("checkpoints", str(len(checkpoints))), ("newest", ", ".join(told))]
    if status.state.is_terminal() and status.state is not RunState.COMPLETED:
        words = ["launch", "rerun", status.id, "--resume", *stack]
        pairs.append(("to go on", shlex.join(words)))
    return console.fields(pairs)


def attempts_table(attempts: Sequence[AttemptBrief]) -> str:
    """Lay out the attempts, one a row."""
    rows = [
        [
            each.name,
            each.started,
            each.ended or "",
            ": ".join(filter(None, [each.state, each.reason])),
        ]
        for each in attempts
    ]
    return console.table(["ATTEMPT", "STARTED", "ENDED", "END"], rows)


def ranks_table(ranks: Sequence[RankReport], tasks: Mapping[int, str]) -> str:
    """Lay out the ranks, one a row; `tasks` are theirs in TensorFlow's cluster."""
    rows = [
        [str(each.rank), str(each.node), each.host, str(each.child or ""), _end(each)]
        + ([tasks.get(each.rank, "")] if tasks else [])
        for each in ranks
    ]
    header = ["RANK", "NODE", "HOST", "PROCESS", "END", *(["TASK"] if tasks else [])]
    return console.table(header, rows, right=(0, 1, 3))


def _end(rank: RankReport) -> str:
    if rank.signal is not None:
        name = signal_name(rank.signal)
        return name if rank.stopped_s is None else f"{name}, when told to end"
    if rank.exit_code is not None:
        return f"exit {rank.exit_code}"
    return rank.stage or "on"


def figures_table(figures: Sequence[Figure]) -> str:
    """Lay out the last and the best value of each figure, the main figure first."""
    rows = [
        [
            each.label,
            value_text(each.last, each.name),
            f"{each.axis} {each.last_at:g}",
            "" if each.best is None else value_text(each.best, each.name),
            "" if each.best_at is None else f"{each.axis} {each.best_at:g}",
        ]
        for each in figures
    ]
    return console.table(["FIGURE", "LAST", "AT", "BEST", "AT"], rows, right=(1, 2, 3, 4))
