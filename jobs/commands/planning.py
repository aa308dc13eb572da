"""Plan the job that `launch plan` and `launch run` name, on the layout that its options choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.commands import options
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import Plan
    from jobs.engines.base import Engine
    from jobs.jobfile.read import LoadedJob


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Words of a job on the command line; `values` are those of options that stand for its keys.

    `is_again` for another size of what was planned just before: how it was read is not said again.
    """

    job: str
    arguments: Sequence[str]
    overrides: Sequence[str]
    values: Mapping[str, str]
    deadline_s: float | None
    budget: float | None
    stack: str
    env: Path | None
    is_again: bool = False


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A planned job; `values` are those asked for, and those that were chosen."""

    plan: Plan
    engine: Engine
    folder: Path
    values: Mapping[str, str]


def plan_asked(asked: Asked) -> Planned:
    """Plan the job; with a deadline or a budget twice, as the first plan tells what job it is."""
    from jobs.launching.plan import plan_job

    loaded = _load(asked)
    environment = options.open_priced(asked.stack, asked.env)
    engine = options.open_engine(environment)
    if asked.deadline_s is not None or asked.budget is not None:
        from jobs.launching.layout import pick_layout

        has_nodes = "nodes" in asked.values or any(
            each.partition("=")[0] == "nodes" for each in asked.overrides
        )
        small = _load(asked if has_nodes else replace(asked, values={**asked.values, "nodes": "1"}))
        spec = plan_job(small, engine).spec
        chosen = pick_layout(
            small.job,
            spec,
            engine,
            num_nodes=spec.nodes if has_nodes else None,
            deadline_s=asked.deadline_s,
            budget=asked.budget,
        )
        asked = replace(asked, values={**asked.values, **chosen})
        loaded = _load(asked)
    for sentence in () if asked.is_again else loaded.sentences:
        console.say(sentence)
    plan = plan_job(loaded, engine)
    return Planned(plan=plan, engine=engine, folder=loaded.folder, values=asked.values)


def show_plan(plan: Plan, engine: Engine, folders: Sequence[Path], *, is_json: bool) -> None:
    """Print what would be started: code, forecast, and what is missing (`folders`: where secrets lie)."""
    import msgspec

    from jobs.launching.forecast_text import forecast_pairs
    from jobs.launching.foresee import ForeseenPlan, foresee
    from jobs.launching.known_runs import past_runs
    from jobs.launching.plan import listing_text, measure_code, missing_notes, plan_text

    environment = engine.environment
    missing = missing_notes(plan.spec, engine, folders)
    foreseen = foresee(plan.spec, environment, past_runs(engine))
    listing = engine.code_listing(plan)
    code = measure_code(plan, engine)
    if is_json:
        sent = listing or code
        more = ({"code": sent} if sent else {}) | dict(engine.told_to_nodes(plan))
        request = msgspec.json.decode(plan.request, type=dict[str, msgspec.Raw]) | more
        told = msgspec.Raw(msgspec.json.encode(request))
        notes = (*plan.notes, *missing)
        shown = msgspec.structs.replace(plan, request=told, notes=notes)
        console.out_json(ForeseenPlan(**msgspec.structs.asdict(shown), foreseen=foreseen))
        return
    forecast = forecast_pairs(foreseen, plan.spec, environment.clusters[plan.spec.cluster])
    console.out(plan_text(plan, environment, code, forecast))
    if listing is not None:
        console.out(listing_text(listing))
    for note in missing:
        console.warn(note)


def _load(asked: Asked) -> LoadedJob:
    from jobs.jobfile.arguments import require_all_words, split_argv
    from jobs.jobfile.notebook import is_notebook
    from jobs.jobfile.read import load_job

    loaded = load_job(asked.job, asked.overrides, asked.values, asked.arguments)
    if not is_notebook(asked.job):  # whose parameters all have names
        _, found = split_argv(["python", asked.job, *asked.arguments])
        require_all_words(found, loaded.job.args)
    return loaded
