"""Writes the tables of docs/prove-azure.md from the code: `python -m tools.prove_azure.pages`."""

from __future__ import annotations

from pathlib import Path

from tools.marked import put_between
from tools.prove_azure.steps import PRIVATE, PUBLIC
from tools.prove_azure.unknowns import ROWS

PAGE = Path(__file__).parents[2] / "docs" / "prove-azure.md"


def steps_table() -> str:
    """List the steps, and which of them a private stack takes."""
    private = {step.name for step in PRIVATE}
    public = [step.name for step in PUBLIC]
    rows = [*PUBLIC, *(step for step in PRIVATE if step.name not in public)]
    lines = ["| step | what it does | settles | private, too |", "| --- | --- | --- | --- |"]
    for step in rows:
        where = "" if step.name not in private else "yes" if step.name in public else "alone"
        lines.append(f"| {step.name} | {step.does} | {', '.join(step.settles)} | {where} |")
    return _text(lines)


def unknowns_table() -> str:
    """List the assumptions."""
    lines = ["| id | assumed | whose word | where it does not hold |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {row.id} | {row.holds} | {row.source} | {row.otherwise} |".replace(" |  |", " | |")
        for row in ROWS
    ]
    return _text(lines)


def rewrite(page: str) -> str:
    """Put the tables of the code in the place of those of the page."""
    for name, table in (("steps", steps_table()), ("unknowns", unknowns_table())):
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        page = put_between(page, begin, end, f"\n{table}")
    return page


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    """Write the page."""
    PAGE.write_text(rewrite(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
