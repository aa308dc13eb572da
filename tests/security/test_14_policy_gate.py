"""Attacker: a colleague in a hurry, who calls a big stack `dev-anything` and types `up`.

Without `--policy-pack`, which a Pulumi built from Go modules cannot even load, no rule was asked.
"""

from __future__ import annotations

from tests.integration.azure_stack.conftest import fresh_project
from tools.gate import SKIP


def test_an_up_that_breaks_a_rule_makes_nothing(tmp_path):
    with fresh_project(tmp_path / "dev", "dev-anything") as project:
        project.variables[SKIP] = "dev"  # another stack's
        project.settings["clusters"]["gpu"] |= {"max_nodes": 200, "priority": "dedicated"}
        project.write_settings()
        done = project.pulumi("up", "--yes", "--skip-preview", "-fysdev-anything", check=False)
        assert done.returncode == 3
        said = done.stdout.splitlines()
        broken = {line.split()[1] for line in said if line.startswith("dev-anything  ")}
        assert broken == {"cluster-max-nodes", "cluster-nodes-together", "cluster-priority"}
        assert said[-1] == (
            f"hint: mend Pulumi.dev-anything.yaml; {SKIP}=dev-anything goes on all the same"
        )
        assert project.live() == {}
