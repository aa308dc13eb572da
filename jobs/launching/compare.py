"""Compare two runs: arguments, code, data, image, environment, and final figures (pure)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import Struct

from jobs.contracts.spec import RunRecord, RunStatus
from jobs.jobfile.arguments import split_argv

# What two runs of one job always differ in, or what is compared in another form.
_LEFT_OUT = ("command", "inputs", "code", "code_only", "resume")
# Facts by which runs are told apart only where nothing else does, and those that follow others.
_LAST_RESORTS = ("commit", "uncommitted", "image digest")
_FOLLOWS = ("environment", "compute")
# Names may hold spaces, and diff.noprefix and diff.mnemonicPrefix change what stands before them.
_HEADER = re.compile(
    r'diff --git (?:"?(?:[a-z]/)?(?P<same>.+?)"? "?(?:[a-z]/)?(?P=same)"?'
    r'|.+ "?(?:[a-z]/)?(?P<after>.+?)"?)\Z'
)


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that is not the same; None where a run does not have it."""

    key: str
    a: str | None
    b: str | None


class FigurePair(Struct, frozen=True, kw_only=True):
    """A final figure of both runs."""

    name: str
    a: float | None
    b: float | None


class RunSide(Struct, frozen=True, kw_only=True):
    """One run's part of a comparison."""

    status: RunStatus
    record: RunRecord
    metrics: dict[str, float]  # final figures by split and name


class Uncommitted(Struct, frozen=True, kw_only=True):
    """The files of each run's code that were changed and not committed."""

    a: tuple[str, ...]
    b: tuple[str, ...]


class RunDiff(Struct, frozen=True, kw_only=True):
    """The whole comparison, as `--json` prints it."""

    a: RunStatus
    b: RunStatus
    differences: tuple[Difference, ...]
    code_diff: str  # a diff of the two diffs against the commit; empty where they are equal
    uncommitted: Uncommitted
    metrics: tuple[FigurePair, ...]


def compare(a: RunSide, b: RunSide) -> RunDiff:
    """Compare two runs; equal values are left out, figures are kept."""
    facts = facts_of(a.record), facts_of(b.record)
    keys = list(dict.fromkeys([*facts[0], *facts[1]]))
    labels = sorted({*a.metrics, *b.metrics})
    return RunDiff(
        a=a.status,
        b=b.status,
        differences=tuple(
            Difference(key=key, a=facts[0].get(key), b=facts[1].get(key))
            for key in keys
            if facts[0].get(key) != facts[1].get(key)
        ),
        code_diff=_code_diff(a.record, b.record),
        uncommitted=Uncommitted(
            a=changed_files(_dirty_diff(a.record)), b=changed_files(_dirty_diff(b.record))
        ),
        metrics=tuple(
            FigurePair(name=label, a=a.metrics.get(label), b=b.metrics.get(label))
            for label in labels
        ),
    )


def facts_of(record: RunRecord) -> dict[str, str]:
    """List the values that may differ between runs, one text per key."""
    spec = record.plan.spec
    command, args = split_argv(spec.command)
    facts = {"command": " ".join(command)}
    facts |= {f"args.{key}": _text(value) for key, value in args.items()}
    for key, value in cast("dict[str, object]", msgspec.to_builtins(spec)).items():
        if key in _LEFT_OUT:
            continue
        if isinstance(value, dict):
            inside = cast("dict[str, object]", value)
            facts |= {f"{key}.{inner}": _text(each) for inner, each in inside.items()}
        else:
            facts[key] = _text(value)
    for name, each in spec.inputs.items():
        data = each.dataset
        place = data.ref + (f"/{each.file}" if each.file else "")
        facts[f"inputs.{name}"] = f"{place} {data.digest} {each.mode}"
    if spec.resume is not None:
        facts["resumed from"] = f"{spec.resume.run} at step {spec.resume.step}"
    if record.git is not None:
        facts["commit"] = record.git.commit
        facts["uncommitted"] = "yes" if record.git.dirty_diff else "no"
    facts["image digest"] = record.image_digest or "unknown"
    facts["environment"] = record.environment_digest
    return facts


def told_apart(records: Sequence[RunRecord]) -> list[dict[str, str]]:
    """Give the facts in which several runs differ, by run: names of jobs, then arguments.

    Runs of different programs are told apart by their names (else their commands), and runs of one
    program by its arguments and the rest of the job. A fact that a run does not have is `none`.
    """
    facts = [facts_of(record) for record in records]
    programs = {each["command"] for each in facts}
    by_program = "name" if len({each["name"] for each in facts}) >= len(programs) else "command"
    found: list[dict[str, str]] = []
    for own in facts:
        alike = [each for each in facts if each["command"] == own["command"]]
        keys = _differing(alike)
        if len(programs) > 1:
            keys = [by_program, *(key for key in keys if key != by_program)]
        found.append({key.removeprefix("args."): own.get(key, "none") for key in keys})
    return found


def _differing(facts: Sequence[dict[str, str]]) -> list[str]:
    keys = list(dict.fromkeys(key for each in facts for key in each if key not in _FOLLOWS))
    keys.sort(key=lambda key: not key.startswith(("name", "args.")))
    differing = [key for key in keys if len({each.get(key) for each in facts}) > 1]
    return [key for key in differing if key not in _LAST_RESORTS] or differing


def changed_files(diff: str) -> tuple[str, ...]:
    """List the files that a diff of git changes, by the names they have after it."""
    named = (_HEADER.match(line) for line in diff.splitlines())
    return tuple(found["same"] or found["after"] for found in named if found)


def _dirty_diff(record: RunRecord) -> str:
    return (record.git.dirty_diff if record.git else None) or ""


def _code_diff(a: RunRecord, b: RunRecord) -> str:
    """Diff the uncommitted changes: a diff of the two diffs."""
    dirty = [_dirty_diff(record).splitlines() for record in (a, b)]
    lines = difflib.unified_diff(*dirty, fromfile=a.id, tofile=b.id, lineterm="", n=1)
    return "\n".join(lines)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
