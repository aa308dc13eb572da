"""`launch show`: all that is known of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.host import console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobs.contracts.spec import RankError, RunRecord, RunStatus
    from jobs.runs.attempts import AttemptBrief
    from jobs.runs.checkpoints import Checkpoint
    from jobs.runs.failure import RankReport
    from jobs.runs.report import Curve


def show(
    *,
    run: options.Run = "last",
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show all that is known of a run.

    How it stands and why, its attempts, ranks, checkpoints, last figures and folders.
    """
    from jobs.runs.attempts import attempts_of
    from jobs.runs.report import read_curves
    from jobs.stacks.cost import spent, spent_text

    environment = options.open_priced(stack, env)
    store = options.open_store(environment)
    handle = store.find(run)
    status, record = store.status(handle), store.record(handle)
    run_dir = Path(handle.run_dir)
    store.bring(handle)
    ranks = read_ranks(run_dir)
    curves = read_curves(run_dir / "metrics.jsonl")
    error, events = store.error(handle), store.events(handle)
    attempts, checkpoints = attempts_of(status.id, events), store.checkpoints(handle)
    places = store.places(handle)
    cost = spent(status, attempts, environment)
    if json:
        told = _as_json(status, record, error, ranks, curves)
        resumed = record.plan.spec.resume
        found = {"count": len(checkpoints), "newest": next(iter(checkpoints), None)}
        more = {
            "attempts": attempts,
            "checkpoints": found,
            "resumed_from": resumed,
            "places": dict(places),
            "cost": cost,
        }
        console.out_json({**told, "events": events, **more})
        return
    costs = [("cost", spent_text(cost))] if cost else []
    _print_status(status, record, error, [*costs, *places])
    _print_checkpoints(status, checkpoints, options.stack_words(stack, env))
    _print_attempts(attempts)
    _print_ranks(ranks, record)
    _print_figures(curves)
    if error is not None and error.traceback:
        console.out()
        console.out(error.traceback.rstrip())


def read_ranks(run_dir: Path) -> list[RankReport]:
    """What each rank left of itself, in order; none while they have not started."""
    import msgspec

    from jobs.host.untrusted import read_json
    from jobs.runs.failure import RankReport

    ranks: list[RankReport] = []
    for path in sorted(run_dir.glob("ranks/*.json")):
        try:
            ranks.append(read_json(path, RankReport))
        except (OSError, msgspec.DecodeError):
            continue
    return ranks


def _as_json(
    status: RunStatus,
    record: RunRecord,
    error: RankError | None,
    ranks: list[RankReport],
    curves: list[Curve],
) -> dict[str, Any]:
    import msgspec

    return {
        **msgspec.to_builtins(status),
        "error": error,
        "ranks": ranks,
        "metrics": [
            {"split": each.split, "name": each.name, "epoch": each.epochs[-1]}
            | {"value": each.values[-1]}
            for each in curves
        ],
        "record": record,
    }


def _print_status(
    status: RunStatus,
    record: RunRecord,
    error: RankError | None,
    places: Sequence[tuple[str, str]],
) -> None:
    import shlex

    from jobs.jobfile.resolve import size_text
    from jobs.runs.outcome import COLOURS, reason, run_time_s

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
        *places,
    ]
    console.out(console.fields([pair for pair in pairs if pair[1]]))


def _image_text(image: str, digest: str | None) -> str:
    is_pinned = digest is None or image.endswith(digest)
    return image if is_pinned else f"{image} {digest}"


def _inputs(record: RunRecord) -> list[str]:
    inputs = record.plan.spec.inputs
    return [f"{name} = {each.dataset.name}@{each.dataset.version}" for name, each in inputs.items()]


def _print_checkpoints(
    status: RunStatus, checkpoints: Sequence[Checkpoint], stack: list[str]
) -> None:
    import shlex

    from jobs.contracts.spec import RunState

    if not checkpoints:
        return
    newest = checkpoints[0]
    told = [f"step {newest.step}", console.size_text(newest.bytes)]
    if newest.saved:
        told.append(f"saved {newest.saved}")
    pairs = [("checkpoints", str(len(checkpoints))), ("newest", ", ".join(told))]
    if status.state.is_terminal() and status.state is not RunState.COMPLETED:
        words = ["launch", "rerun", status.id, "--resume", *stack]
        pairs.append(("to go on", shlex.join(words)))
    console.out()
    console.out(console.fields(pairs))


def _print_attempts(attempts: list[AttemptBrief]) -> None:
    if len(attempts) < 2:
        return
    rows = [
        [
            each.name,
            each.started,
            each.ended or "",
            ": ".join(filter(None, [each.state, each.reason])),
        ]
        for each in attempts
    ]
    console.out()
    console.out(console.table(["ATTEMPT", "STARTED", "ENDED", "END"], rows))


def _print_ranks(ranks: list[RankReport], record: RunRecord) -> None:
    if not ranks:
        return
    tasks = _tasks(record)
    rows = [
        [str(each.rank), str(each.node), each.host, str(each.child or ""), _end(each)]
        + ([tasks.get(each.rank, "")] if tasks else [])
        for each in ranks
    ]
    console.out()
    header = ["RANK", "NODE", "HOST", "PROCESS", "END", *(["TASK"] if tasks else [])]
    console.out(console.table(header, rows, right=(0, 1, 3)))


def _tasks(record: RunRecord) -> dict[int, str]:
    """What each rank is in TensorFlow's cluster; nothing under another launcher."""
    ranks: list[dict[str, Any]] = record.plan.request.get("ranks", [])
    tasks = {each["rank"]: each.get("task") for each in ranks}
    return {rank: f"{task[0]} {task[1]}" for rank, task in tasks.items() if task}


def _end(rank: RankReport) -> str:
    import signal

    if rank.signal is not None:
        try:
            name = signal.Signals(rank.signal).name
        except ValueError:
            name = f"signal {rank.signal}"
        return name if rank.stopped_s is None else f"{name}, when told to end"
    if rank.exit_code is not None:
        return f"exit {rank.exit_code}"
    return rank.stage or "on"


def _print_figures(curves: list[Curve]) -> None:
    if not curves:
        return
    rows = [
        [f"{each.split} {each.name}", f"{each.values[-1]:.6g}", f"{each.epochs[-1]:g}"]
        for each in curves
    ]
    console.out()
    console.out(console.table(["LAST FIGURE", "VALUE", "EPOCH"], rows, right=(1, 2)))


app = make_app({"show": show})
