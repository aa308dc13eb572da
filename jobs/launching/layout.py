"""Choose the cluster and the nodes of a job by a deadline or a budget, and say why."""

from __future__ import annotations

from jobs.contracts.errors import Refused
from jobs.contracts.spec import JobFile, JobSpec
from jobs.engines.base import Engine
from jobs.host import console
from jobs.launching.forecast_text import chosen_text, none_text
from jobs.launching.foresee import choose_layout
from jobs.launching.known_runs import shared_past_runs


def pick_layout(
    job: JobFile,
    spec: JobSpec,
    engine: Engine,
    *,
    num_nodes: int | None,
    deadline_s: float | None,
    budget: float | None,
) -> dict[str, str]:
    """Give the keys of the job file that place the job; raises Refused where no layout keeps both.

    Asks what other machines know of the job. `num_nodes` is the user's own choice.
    """
    environment = engine.environment
    past = shared_past_runs(engine, spec)
    choice = choose_layout(
        job, spec, environment, past, num_nodes=num_nodes, deadline_s=deadline_s, budget=budget
    )
    if choice.chosen is None:
        hint = "a longer --deadline or a larger --budget"
        if choice.nearest is None or choice.nearest.time_s is None:
            hint = "run it to its end once, then ask again"
        elif choice.lacks_retries:
            hint = "a larger `retry.max` with `preemption` in `retry.on`, or a dedicated cluster"
        elif budget is not None and choice.nearest.cost is None:
            hint = "no price is known of its nodes; --deadline needs none"
        raise Refused(none_text(choice, environment.clusters), hint=hint)
    one = choice.chosen
    console.say(
        chosen_text(one, environment.clusters[one.cluster], by_deadline=deadline_s is not None)
    )
    return {"nodes": str(one.nodes), "cluster": one.cluster}
