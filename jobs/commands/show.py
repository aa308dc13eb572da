"""`launch show`: show a run's state, attempts, ranks and figures."""

from __future__ import annotations

from pathlib import Path

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.host import console


def show(
    *,
    run: options.Run = "last",
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show a run's state, attempts, ranks and figures.

    The output includes the reason of a failure, checkpoints, cost and folders.
    """
    from jobs.launching.ahead import look_ahead, progress_fields
    from jobs.runs import show_text
    from jobs.runs.ending import fetch_command, main_figures, output_places
    from jobs.runs.figures import figures_of
    from jobs.runs.metrics import read_curves
    from jobs.runs.outcome import advice, attempts_of
    from jobs.runs.progress import read_progress
    from jobs.stacks.cost import spent_text

    environment = options.open_priced(stack, env)
    store = options.open_store(environment)
    handle = store.find(run)
    status, record = store.status(handle), store.record(handle)
    run_dir = Path(handle.run_dir)
    store.bring(handle)
    ranks = show_text.read_ranks(run_dir)
    figures = figures_of(read_curves(run_dir / "metrics.jsonl"))
    error, events = store.error(handle), store.events(handle)
    attempts, checkpoints = attempts_of(status.id, events), store.checkpoints(handle)
    places = store.places(handle)
    ahead = look_ahead(status, read_progress(run_dir), environment, attempts)
    cost = ahead.cost
    if json:
        told = show_text.as_json(status, record, error, ranks, figures)
        resumed = record.plan.spec.resume
        newest = next(iter(checkpoints), None)
        found = {"count": len(checkpoints), "newest": newest, "all": checkpoints}
        more = {
            "attempts": attempts,
            "checkpoints": found,
            "resumed_from": resumed,
            "places": dict(places),
            "progress": ahead.progress,
            "cost": cost,
        }
        console.out_json({**told, "events": events, **more})
        return
    words = options.stack_words(stack, env)
    costs = [("cost", spent_text(cost))] if cost else []
    made = output_places(status, dict(places), record.plan.spec.outputs)
    told = [
        *main_figures(figures),
        *progress_fields(status, ahead),
        *costs,
        *places,
        *(each for each in made if each not in places),
        *(("note", note) for note in record.plan.notes),
    ]
    if made:
        told.append(fetch_command(status, words))
    console.out(show_text.status_text(status, record, error, told))
    parts = [
        checkpoints and show_text.checkpoints_text(status, checkpoints, words),
        attempts[1:] and show_text.attempts_table(attempts),
        ranks and show_text.ranks_table(ranks, store.tasks(record)),
        figures and show_text.figures_table(figures),
        error and error.traceback and error.traceback.rstrip(),
        (remedy := advice(error)) and f"hint: {remedy}",
    ]
    for part in filter(None, parts):
        console.out(f"\n{part}")


app = make_app({"show": show})
