"""`launch diff`: compare two runs and their final figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.host import console

if TYPE_CHECKING:
    from jobs.engines.base import Runs
    from jobs.launching.compare import RunDiff, RunSide

MAX_CELL = 60


def diff(
    *,
    a: options.Run,
    b: options.Run,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show how two runs differ.

    Compares arguments, code, data, image, environment and final figures.
    """
    from jobs.launching.compare import compare

    store = options.open_store(options.open_environment(stack, env))
    result = compare(_side(store, a), _side(store, b))
    if json:
        console.out_json(result)
    else:
        _print(result)


def _side(store: Runs, name: str) -> RunSide:
    from jobs.launching.compare import RunSide
    from jobs.runs.metrics import read_curves

    handle = store.find(name)
    store.bring(handle)
    curves = read_curves(Path(handle.run_dir) / "metrics.jsonl")
    return RunSide(
        status=store.status(handle),
        record=store.record(handle),
        metrics={each.label: each.last[1] for each in curves},
    )


def _print(result: RunDiff) -> None:
    if result.a.id == result.b.id:
        console.out(f"both are the same run, {result.a.id}")
        return
    header = ["", result.a.id, result.b.id]
    rows = [["state", result.a.state.value, result.b.state.value]]
    rows += [
        [each.key, _cell(each.a, each.b), _cell(each.b, each.a)] for each in result.differences
    ]
    console.out(console.table(header, rows))
    if not result.differences:
        console.out("same job, code, data, image and environment")
    if result.metrics:
        figures = [[each.name, _figure(each.a), _figure(each.b)] for each in result.metrics]
        console.out()
        console.out(console.table(["FINAL", result.a.id, result.b.id], figures, right=(1, 2)))
    if result.code_diff:
        console.out()
        _print_uncommitted(result)


def _print_uncommitted(result: RunDiff) -> None:
    """Print which files were not committed; only `--json` has the diff of the diffs."""
    rows = [
        [run.id, ", ".join(files) or "nothing"]
        for run, files in ((result.a, result.uncommitted.a), (result.b, result.uncommitted.b))
    ]
    console.out("uncommitted changes differ:")
    console.out(console.table(["RUN", "CHANGED"], rows))
    console.out("to read them: launch show RUN --json, under record.git.dirty_diff")


def _cell(text: str | None, other: str | None) -> str:
    """Shorten the text around its first difference."""
    if text is None:
        return "-"
    if len(text) <= MAX_CELL:
        return text
    pairs = enumerate(zip(text, other or "", strict=False))
    first = next((at for at, (mine, theirs) in pairs if mine != theirs), 0)
    start = max(min(first - 10, len(text) - MAX_CELL), 0)
    return ("..." if start else "") + text[start : start + MAX_CELL] + "..."


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


app = make_app({"diff": diff})
