"""Writes what was found as Markdown and JSON to send back: no secret, ids shortened (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from tools.prove_azure.record import Record, Verdict
from tools.prove_azure.steps import Step
from tools.prove_azure.unknowns import ROWS, Unknown

_GUID = re.compile(
    r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE
)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
_ADDRESS = re.compile(r"\b(?!127\.|10\.)\d{1,3}(\.\d{1,3}){3}\b")
_SECRETS = re.compile(
    r"(sig|sv|se|token|secret|password|key)=[^&\s\"']+|\beyJ[\w-]+\.[\w-]+\.[\w-]*"
    r"|Bearer\s+\S+|AccountKey=[^;\s]+",
    re.IGNORECASE,
)


def scrub(text: str) -> str:
    """Take out what nobody else should read."""
    text = _SECRETS.sub("***", text)
    text = _MAIL.sub("MAIL", text)
    text = _ADDRESS.sub("ADDRESS", text)
    return _GUID.sub(r"\1-...", text)


def _scrub_all(value: Any) -> Any:
    """Scrub every text of a tree before it is JSON, whose quotes a match would take along."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: _scrub_all(each) for name, each in fields.items()}
    if isinstance(value, list):
        return [_scrub_all(each) for each in cast("list[Any]", value)]
    return scrub(value) if isinstance(value, str) else value


def write_json(record: Record, steps: Sequence[Step]) -> str:
    """Write the findings for programs."""
    content = {
        "stack": record.stack,
        "location": record.location,
        "spent_usd_at_most": round(record.spent, 2),
        "steps": [
            {"name": step.name, **msgspec.to_builtins(record.steps[step.name])}
            for step in steps
            if step.name in record.steps
        ],
        "unknowns": [
            {"id": row.id, "verdict": word, "step": found.step, "words": found.words}
            if found
            else {"id": row.id, "verdict": word}
            for row, found, word in _verdicts(record)
        ],
    }
    encoded = msgspec.json.encode(_scrub_all(content))
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def write_markdown(record: Record, steps: Sequence[Step], version: str) -> str:
    """Write the findings for people: what does not hold first."""
    found = _verdicts(record)
    denied = [(row, verdict) for row, verdict, word in found if verdict and word == "denied"]
    held = [row for row, _, word in found if word == "held"]
    unseen = [row for row, _, word in found if word == "not seen"]
    lines = [
        f"# Trainyard {version} on Azure: stack {record.stack}, {record.location}",
        "",
        f"{len(held)} assumptions held, {len(denied)} did not, {len(unseen)} were not seen. "
        f"Estimated cost: {record.spent:.2f} USD at most.",
        "",
        "## Did not hold",
        "",
    ]
    for row, verdict in denied:
        lines += [f"### {row.id}: {row.holds}", "", f"Seen in step `{verdict.step}`:", ""]
        lines += [f"    {line}" for line in verdict.words.splitlines()]
        lines += ["", f"Then: {row.otherwise}.", ""]
    if not denied:
        lines += ["Nothing.", ""]
    lines += ["## Failed, and no assumption of the list tells why", "", *_unclear(record), ""]
    lines += ["## Held", "", *_listed(held), "", "## Not seen", "", *_listed(unseen), ""]
    lines += ["## Steps", "", "| step | end | seconds | words |", "| --- | --- | --- | --- |"]
    for step in steps:
        end = record.steps.get(step.name)
        if end is not None:
            first = (end.words.splitlines() or [""])[0].replace("|", "/")
            lines.append(f"| {step.name} | {end.outcome} | {end.seconds:g} | {first} |")
    return scrub("\n".join(lines)) + "\n"


def _unclear(record: Record) -> list[str]:
    known = {verdict.words for verdict in record.verdicts.values()}
    failed = {name: end for name, end in record.steps.items() if end.outcome == "failed"}
    lines: list[str] = []
    for name, end in failed.items():
        if end.words not in known:
            lines += [f"`{name}`:", "", *(f"    {line}" for line in end.words.splitlines()), ""]
    return lines or ["Nothing."]


def _listed(rows: Sequence[Unknown]) -> list[str]:
    return [f"- {row.id}: {row.holds}" for row in rows] or ["Nothing."]


def _verdicts(record: Record) -> list[tuple[Unknown, Verdict | None, str]]:
    return [(row, record.verdicts.get(row.id), _word(record.verdicts, row)) for row in ROWS]


def _word(verdicts: Mapping[str, Verdict], row: Unknown) -> str:
    verdict = verdicts.get(row.id)
    if verdict is None:
        return "not seen"
    return "held" if verdict.holds else "denied"
