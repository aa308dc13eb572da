"""Writes the tables of docs/policy.md: `python -m infra.policy.document`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from infra.policy.pack import RULES
from infra.policy.rules import STAGES, Rule
from infra.policy.waivers import WAIVED_PARTS, WAIVED_ROWS, WAIVERS

PAGE = Path(__file__).parents[2] / "docs" / "policy.md"
# What Checkov 3.3.30 has for ARM templates and what we declare; its other ids are for Terraform.
# CKV_AZURE_33 looks at queues and CKV_AZURE_39 at custom roles, of which we have none.
SEEN_BY_CHECKOV = frozenset(
    f"CKV_AZURE_{number}"
    for number in (
        *(3, 9, 10, 34, 35, 36, 41, 42, 43, 44, 59, 109, 110, 111, 114, 137, 138, 139, 160, 163),
        *(189, 206, 233, 243),
    )
) | {"CKV2_AZURE_49"}


def main() -> None:
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def fill(page: str) -> str:
    """Replace the tables of the page."""
    for name, text in {
        "rules": rules(),
        "waivers": _waivers(("rule of others", "why not"), WAIVERS),
        "waived rows": _waivers(("row", "why no rule"), WAIVED_ROWS),
        "waived parts": _waivers(("row", "what no rule sees, and who does"), WAIVED_PARTS),
    }.items():
        begin, end = f"<!-- {name}: written by infra/policy/document.py -->", f"<!-- /{name} -->"
        pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
        page, count = re.subn(
            pattern, lambda _, new=f"{begin}\n{text}\n{end}": new, page, flags=re.DOTALL
        )
        assert count == 1, f"docs/policy.md has no place for: {name}"
    return page


def rules() -> str:
    """List the rules by row of the checklist."""
    rows = [
        (each.row, f"`{each.name}`", each.says, _stages(each), each.sources, _is_seen(each))
        for each in sorted(RULES, key=_place)
    ]
    seen = sum(is_seen_by_checkov(each) for each in RULES)
    return (
        f"{len(RULES)} rules, {seen} of which Checkov judges too when it is shown the stacks as ARM "
        f"templates (`tests/infra/checkov`); the other {len(RULES) - seen} it cannot see.\n\n"
        + _table(("row", "rule", "demands", "stages", "sources", "Checkov sees it"), rows)
    )


def is_seen_by_checkov(rule: Rule) -> bool:
    """Tell whether Checkov judges the same in an ARM template."""
    return any(each in SEEN_BY_CHECKOV for each in rule.sources.split(", "))


def _is_seen(rule: Rule) -> str:
    return "yes" if is_seen_by_checkov(rule) else ""


def _place(rule: Rule) -> tuple[int, int, str]:
    return "SKAWCIG".index(rule.row[0]), int(rule.row[1:]), rule.name


def _stages(rule: Rule) -> str:
    return "all" if len(rule.stages) == len(STAGES) else ", ".join(rule.stages)


def _waivers(header: tuple[str, str], reasons: Mapping[str, str]) -> str:
    return _table(header, list(reasons.items()))


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    cells = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(each.replace('|', '/') for each in row)} |" for row in cells)


if __name__ == "__main__":
    main()
