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
    """Words of a job on the command line; `values` are those of options that stand for its keys."""

    job: str
    arguments: Sequence[str]
    overrides: Sequence[str]
    values: Mapping[str, str]
    deadline_s: float | None
    budget: float | None
    stack: str
    env: Path | None


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
    for sentence in loaded.sentences:
        console.say(sentence)
    plan = plan_job(loaded, engine)
    return Planned(plan=plan, engine=engine, folder=loaded.folder, values=asked.values)


def _load(asked: Asked) -> LoadedJob:
    from jobs.jobfile.read import load_job

    return load_job(asked.job, asked.overrides, asked.values, asked.arguments)
