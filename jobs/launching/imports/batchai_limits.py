"""Reads limits, priority, experiment and cluster of a Batch AI job into its draft."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jobs.contracts.spec import Priority
from jobs.host.units import parse_iso_duration
from jobs.launching.imports.draft import Draft, Project, job_name
from jobs.launching.imports.leaves import Place

STATE_REASON = "the state of a job that has run: a run has its own, `launch show` shows it"
_LONGEST_S = 10 * 365 * 86400
_PRIORITIES: Mapping[str, Priority] = {"low": "low", "normal": "normal", "high": "high"}
_DAYS = re.compile(
    r"(?:(?P<days>[0-9]{1,6})(?:\.| days?,? *))?(?P<h>[0-9]{1,6}):(?P<m>[0-9]{1,2}):(?P<s>[0-9]{1,2})(?:\.[0-9]+)?\Z"
)


def read_limits(body: Place, draft: Draft, project: Project) -> None:
    """Read limits, priority and experiment into the draft."""
    constraints = body.section("constraints")
    if constraints and (told := constraints.take_text("maxWallClockTime")):
        seconds = duration_s(told[0])
        if seconds:
            draft.wall_clock_s = seconds
            told[1].converted("limits.wall_clock")
        else:
            told[1].refused(
                "it is no length of time up to ten years: set `limits: {wall_clock: 7d}`"
            )
    if told := body.take_text("schedulingPriority"):
        named = _PRIORITIES.get(told[0].lower())
        if named is None:
            told[1].refused("a priority is low, normal or high: the job has normal")
        else:
            draft.priority = named
            told[1].converted("priority")
    if number := body.take_number("priority"):
        draft.priority = "normal" if not number[0] else "high" if number[0] > 0 else "low"
        number[1].converted("priority")
    if told := body.take_text("experimentName"):
        if project.vault.holds(told[0]):
            told[1].refused("it looks like a secret: set `experiment`")
        else:
            draft.experiment = job_name(told[0], "experiment")
            told[1].converted("experiment")


def read_cluster_name(body: Place, draft: Draft, project: Project) -> None:
    """Tell of the cluster that a job names; the job file names none, as a stack's are called otherwise."""
    section = body.section("cluster")
    told = section.take_text("id") if section else None
    if section and (group := section.get("resourceGroup")):
        group.refused(STATE_REASON)
    if told is None:
        return
    name = told[0].rstrip("/").rpartition("/")[2]
    known = [each for each in project.clusters if each.known_as.lower() == name.lower()]
    if known:
        if known[0].is_paused:
            known[0].max_nodes = max(known[0].max_nodes, draft.nodes)
        told[1].converted(
            f"clusters.{known[0].name}: `launch` takes the first cluster that is large enough"
        )
    else:
        told[1].refused(
            "its cluster is not among the documents: import its cluster.json, too, or choose one "
            "of the stack's by --cluster"
        )


def duration_s(text: str) -> float | None:
    """Read a length of time as Batch AI and its tools write it: `P7D`, `7.00:00:00`, `7 days, 0:00:00`."""
    if (seconds := parse_iso_duration(text.strip())) is not None:
        return _in_bounds(seconds)
    found = _DAYS.match(text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(found[each] or 0) for each in ("days", "h", "m", "s"))
    return _in_bounds(days * 86400 + hours * 3600 + minutes * 60 + seconds)


def _in_bounds(seconds: int) -> float | None:
    return float(seconds) if 0 < seconds <= _LONGEST_S else None
