"""Judges dev, test and prod by the policy pack: `python -m tests.environments.policy [STACK...]`.

The pack's own server judges what a preview shows, as under `pulumi preview --policy-pack`. The
preview runs against a stand-in for Azure, so it needs no account and shows a stack that is not
there yet.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.contracts.errors import ExitCode, LaunchError
from jobs.host import console
from tests.environments.analyzer import Diagnostic, Policy, start_analyzer
from tests.environments.stand_in_preview import Preview, preview
from tools.project import Project, this_project

STACKS = ("dev", "test", "prod")
PACK = "infra/policy"
# Previews a stack of a project in an empty folder.
Show = Callable[[Project, str, Path], Preview]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Violations of one stack by the pack."""

    stack: str
    num_resources: int
    policies: Sequence[Policy]
    diagnostics: Sequence[Diagnostic]


def main(
    argv: Sequence[str] | None = None,
    *,
    project: Project | None = None,
    pack: Path | None = None,
    show: Show = preview,
) -> int:
    """Judge the named stacks, all three where none is named; 3 where a rule is broken."""
    stacks = tuple(sys.argv[1:] if argv is None else argv) or STACKS
    project = project or this_project(os.environ)
    pack = pack or this_project(os.environ).root / PACK
    console.say("previews run against a stand-in for Azure, as stacks that are not there yet")
    try:
        verdicts = [judge(project, stack, pack, show) for stack in stacks]
    except LaunchError as error:
        console.report_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    for each in verdicts:
        console.out(summarize(each))
    broken = [row for each in verdicts for row in rows(each)]
    if broken:
        console.out()
        console.out(console.table(("stack", "rule", "resource", "why", "source"), broken))
        return ExitCode.REFUSED
    return ExitCode.SUCCEEDED


def judge(project: Project, stack: str, pack: Path, show: Show) -> Verdict:
    """Preview a stack and hand it to the pack as the engine would."""
    with tempfile.TemporaryDirectory(prefix="trainyard-policy-") as folder:
        resources = show(project, stack, Path(folder)).resources
    with start_analyzer(pack, project="trainyard", stack=stack) as analyzer:
        return Verdict(
            stack=stack,
            num_resources=len(resources),
            policies=analyzer.policies(),
            diagnostics=[
                *(found for each in resources for found in analyzer.analyze(each)),
                *analyzer.analyze_stack(resources),
            ],
        )


def summarize(verdict: Verdict) -> str:
    """Write one line: how much was judged by how many rules, and how it ended."""
    rules = [each for each in verdict.policies if each.is_mandatory]
    found = len(verdict.diagnostics)
    ending = "no violation" if not found else console.count_text(found, "violation")
    return (
        f"{verdict.stack}: {console.count_text(verdict.num_resources, 'resource')}, "
        f"{console.count_text(len(rules), 'mandatory rule')}, {ending}"
    )


def rows(verdict: Verdict) -> list[tuple[str, str, str, str, str]]:
    """List the violations, a rule that could not run among them: at `up` nobody would see its
    warning.
    """
    descriptions = {each.name: each.description for each in verdict.policies}
    return [
        (
            verdict.stack,
            each.policy,
            each.urn.rpartition("::")[2] or "(the stack)",
            each.message.removeprefix(descriptions.get(each.policy, "")).strip(),
            _source(descriptions.get(each.policy, "")),
        )
        for each in verdict.diagnostics
    ]


def _source(description: str) -> str:
    """Cut the checklist's row and the ids out of a rule's description."""
    row = description.partition(". ")[0]
    return f"{row}: {description.rpartition('Sources: ')[2].rstrip('.')}"


if __name__ == "__main__":
    sys.exit(main())
