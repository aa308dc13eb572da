"""Lays values of verbs out as tables: columns, and a row each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

import msgspec

from jobs.contracts.spec import RunRecord
from jobs.host.console import duration_text, size_text
from jobs.host.structs import prepared
from jobs.launching.compare import facts_of
from jobs.stacks.cost import money_text

MOST_CHANGES = 200
# What `launch cluster ls` counts nodes by.
_NODE_STATES = ("idle", "running", "preparing", "leaving", "unusable", "preempted")
_WAITING = ("queued", "preparing")

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Link:
    """A cell that leads to another page."""

    text: str
    address: str


Cell = str | Link


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a page; `numbers` are the columns that hold numbers."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: frozenset[int] = field(default_factory=frozenset[int])


def _table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    numbers: Iterable[int] = (),
) -> Table:
    return Table(caption=caption, columns=columns, rows=list(rows), numbers=frozenset(numbers))


def versions(kind: str, place: str, records: Sequence[Row]) -> Table:
    """Lay out versions of datasets or models (`kind` is the verb), each with its own page."""
    columns = ["Name", "Version", "Files", "Size", "Created", "Digest"]
    if kind == "model":
        columns.append("Of run")
    rows: list[list[Cell]] = []
    for each in records:
        ref = f"{each['name']}@{each['version']}"
        row: list[Cell] = [
            Link(text=each["name"], address=f"/{kind}/{quote(place)}/{quote(ref)}"),
            str(each["version"]),
            f"{each['files']:,}",
            size_text(each["bytes"]),
            each["created"][:16].replace("T", " "),
            each["digest"][:12],
        ]
        if kind == "model":
            lineage: Row = each.get("lineage") or {}
            row.append(_run_of(lineage.get("run"), place))
        rows.append(row)
    return _table(f"{kind} of {place}", columns, rows, (1, 2, 3))


def _run_of(run: str | None, place: str) -> Cell:
    return Link(text=run, address=f"/runs/{quote(place)}/{quote(run)}") if run else ""


def facts(caption: str, told: Mapping[str, Any]) -> Table:
    """Lay out the members of a value, those within others by dotted names; empty ones are left out."""
    return _table(caption, ["Key", "Value"], [[key, text] for key, text in _flat(told)])


def _flat(told: Mapping[str, Any], within: str = "") -> Iterable[tuple[str, str]]:
    for name, value in told.items():
        key = f"{within}{name}"
        if isinstance(value, Mapping):
            yield from _flat(cast("Row", value), f"{key}.")
        elif isinstance(value, list):
            texts = [str(each) for each in cast("list[object]", value)]
            if texts:
                yield key, ", ".join(texts)
        elif isinstance(value, bool):
            yield key, "yes" if value else "no"
        elif value not in (None, ""):
            yield key, str(value)


def shares(title: str, folders: Sequence[Row]) -> Table:
    """Lay out the largest folders or kinds of files of a version."""
    rows = [[each["name"], f"{each['files']:,}", size_text(each["bytes"])] for each in folders]
    return _table(f"By {title.lower()}", [title, "Files", "Size"], rows, (1, 2))


def changes(found: Sequence[Row]) -> Table:
    """Lay out the files in which two versions differ, the first ones."""
    rows = [
        [each["path"], each["kind"], *(_size(each.get(side)) for side in ("a", "b"))]
        for each in found[:MOST_CHANGES]
    ]
    more = f", the first {MOST_CHANGES}" if len(found) > MOST_CHANGES else ""
    return _table(f"{len(found):,} files differ{more}", ["File", "Change", "A", "B"], rows, (2, 3))


def _size(num_bytes: int | None) -> str:
    return "" if num_bytes is None else size_text(num_bytes)


def live_clusters(place: str, clusters: Sequence[Row]) -> Table:
    """Lay out clusters of Azure: nodes by state, cost now, and of the idle ones."""
    columns = ["Cluster", "Size", "Priority", "State", "Nodes"]
    columns += [each.capitalize() for each in _NODE_STATES] + [
        "Costs now",
        "Idle costs",
        "Idle after",
    ]
    rows = [
        [
            each["name"],
            each["size"],
            each["priority"].replace("_", " "),
            each["state"],
            f"{each['nodes']} of {each['min_nodes']}-{each['max_nodes']}",
            *(str(each["counts"][state]) for state in _NODE_STATES),
            _rate(each, each["nodes"]),
            _rate(each, each["counts"]["idle"]),
            duration_text(each["idle_s"]),
        ]
        for each in clusters
    ]
    return _table(f"Clusters of {place}", columns, rows, range(4, 13))


def local_clusters(place: str, clusters: Mapping[str, Row], runs: Sequence[Row]) -> Table:
    """Lay out clusters of a machine: nodes that runs have, that they wait for, and idle ones."""
    columns = ["Cluster", "Size", "Nodes", "Running", "Waiting", "Idle", "CPUs", "GPUs", "Ranks"]
    columns += ["Costs now"]
    rows: list[list[Cell]] = []
    for name, each in clusters.items():
        running = _nodes_of(runs, name, ("running",))
        idle = max(each["max_nodes"] - running, 0)
        row: list[Cell] = [name, each["size"]]
        numbers = (each["max_nodes"], running, _nodes_of(runs, name, _WAITING), idle)
        more = (each["cpus_per_node"], each["gpus_per_node"], each["processes_per_node"])
        rows.append([*row, *map(str, (*numbers, *more)), _rate(each, running)])
    return _table(f"Clusters of {place}", columns, rows, range(2, 10))


def _nodes_of(runs: Sequence[Row], cluster: str, states: Sequence[str]) -> int:
    return sum(run["nodes"] for run in runs if run["cluster"] == cluster and run["state"] in states)


def _rate(cluster: Row, num_nodes: int) -> str:
    price = cluster["price_per_node_hour"]
    if price is None:
        return "unknown"
    return "free" if price == 0 else f"{money_text(price * num_nodes, cluster['currency'])}/h"


def declared_clusters(environment: Row) -> Table:
    """Lay out the clusters that an environment names, with the price of a node."""
    columns = ["Cluster", "Compute", "Size", "Nodes", "CPUs", "GPUs", "Ranks", "A node costs"]
    rows = [
        [
            *(name, each["compute"], each["size"]),
            f"{each['min_nodes']}-{each['max_nodes']}",
            *(str(each[key]) for key in ("cpus_per_node", "gpus_per_node", "processes_per_node")),
            _rate(each, 1),
        ]
        for name, each in environment["clusters"].items()
    ]
    return _table("Clusters", columns, rows, range(3, 8))


def environment_facts(environment: Row) -> Table:
    """Lay out what an environment consists of but its clusters."""
    return facts("Parts", {key: each for key, each in environment.items() if key != "clusters"})


def planned(told: Row) -> Table:
    """Lay out what `pulumi up` would change, what would be lost first."""
    rows: list[list[Cell]] = [
        [
            each["name"],
            each["type"].rpartition(":")[2],
            each["change"] + ("" if not each["because"] else f" ({', '.join(each['because'])})"),
            _loss_state(each),
            each["costs"],
        ]
        for each in told["losses"]
    ]
    for change in ("updated", "created"):
        rows += [[name, "", change, "", ""] for name in told[change]]
    stopped = (
        ": Pulumi stops at protected resources, others are unknown" if told["is_cut_short"] else ""
    )
    caption = (f"{len(rows)} changes" if rows else "No resource changes") + stopped
    return _table(caption, ["Name", "Kind", "Change", "State", "Costs"], rows)


def _loss_state(loss: Row) -> str:
    if loss["is_protected"]:
        return "protected"
    if loss["is_locked"]:
        return "locked"
    return "allowed" if loss["is_allowed"] else "refused"


def parts(caption: str, found: Sequence[Row]) -> Table:
    """Lay out whether each part can be used, and what mends it."""
    rows = [
        [each["part"], _part_state(each), each["detail"], each.get("mend", "")] for each in found
    ]
    return _table(caption, ["Part", "State", "Found", "To mend it"], rows)


def _part_state(part: Row) -> str:
    if not part.get("known", True):
        return "unknown"
    return "ok" if part["ok"] else "failed"


def quotas(found: Sequence[Row]) -> Table:
    """Lay out limits on vCPUs against what the clusters may need."""
    columns = ["Quota", "State", "Limit", "Used", "Needed", "Short", "Clusters"]
    rows = [
        [
            each["quota"],
            "failed" if not each["ok"] else "short" if each["short"] else "ok",
            *(str(each[key]) for key in ("limit", "used", "needed", "short")),
            ", ".join(each["clusters"]),
        ]
        for each in found
    ]
    return _table("Quota", columns, rows, (2, 3, 4, 5))


def checks(place: str, found: Sequence[Row]) -> Table:
    """Lay out what a machine has, and the commands that install what it lacks."""
    rows = [[each["part"], each["health"], each["found"], each["mend"] or ""] for each in found]
    return _table(f"Checks of {place}", ["Part", "State", "Found", "To mend it"], rows)


def record_of(told: Row) -> RunRecord:
    """Read a run's record out of what `launch show` tells."""
    return msgspec.json.decode(msgspec.json.encode(told), type=prepared(RunRecord))


def configuration(record: RunRecord) -> Table:
    """Lay out what a run was made of, by the keys under which runs are compared."""
    told = facts_of(record)
    return _table(
        "What it was made of", ["Key", "Value"], [[key, each] for key, each in told.items()]
    )


def differences(told: Row) -> Table:
    """Lay out in which keys two runs differ; what one does not have is `-`."""
    columns = ["Key", told["a"]["id"], told["b"]["id"]]
    rows: list[list[Cell]] = [["state", told["a"]["state"], told["b"]["state"]]]
    rows += [
        [each["key"], *(_or_dash(each[side]) for side in "ab")] for each in told["differences"]
    ]
    return _table("Differences", columns, rows)


def final_figures(told: Row) -> Table:
    """Lay out the final figures of two runs."""
    columns = ["Figure", told["a"]["id"], told["b"]["id"]]
    rows = [[each["name"], *(_number(each[side]) for side in "ab")] for each in told["metrics"]]
    return _table("Final figures", columns, rows, (1, 2))


def _or_dash(text: str | None) -> str:
    return "-" if text is None else text


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def checkpoints(found: Sequence[Row], age: Mapping[str, str]) -> Table:
    """Lay out the checkpoints of a run, newest first; `age` says how old each one is, by its name."""
    rows = [[str(each["step"]), size_text(each["bytes"]), age[each["name"]]] for each in found]
    return _table("Checkpoints", ["Step", "Size", "Age"], rows, (0, 1, 2))


def ranks(found: Sequence[Row]) -> Table:
    """Lay out the ranks of a run and how each one ended."""
    rows = [
        [str(each["rank"]), str(each["node"]), each["host"], _end_of(each), _last_line(each)]
        for each in found
    ]
    return _table("Ranks", ["Rank", "Node", "Host", "End", "Last line"], rows, (0, 1))


def _end_of(rank: Row) -> str:
    if rank["signal"] is not None:
        told = f"signal {rank['signal']}"
        return told if rank["stopped_s"] is None else f"{told}, when told to end"
    if rank["exit_code"] is not None:
        return f"exit {rank['exit_code']}"
    return rank["stage"] or "on"


def _last_line(rank: Row) -> str:
    lines = rank["last_lines"].rstrip().splitlines()
    return lines[-1][:200] if lines else ""
