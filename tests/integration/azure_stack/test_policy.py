"""The policy pack on what previews of the real stacks show: silent on them, loud on a mutant of each rule.

Mutants of some rules go through the pack's own server; those of all are judged by the rules themselves
in tests/infra/policy/test_mutants.py.
"""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from infra.policy import machine_learning, pack
from infra.policy.rules import Resource, ResourceRule, Rule, Stack, StackRule
from jobs.contracts.errors import EnvironmentFailure
from tests.campaign import mutants
from tests.environments import policy
from tests.environments.analyzer import Analyzer, start_analyzer
from tests.environments.stand_in_preview import Preview, preview
from tests.infra.policy.mutants import Mutant
from tests.infra.policy.written import mutants_of
from tools.project import Project, this_project

REPO = Path(__file__).parents[3]
PACK = REPO / "infra" / "policy"
UNKNOWN_BOOLEAN = "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7"  # pulumi_policy/proxy.py
UNKNOWN_STRING = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


@pytest.fixture(scope="module")
def previews(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Preview]:
    """Gives what the engine would make of a stack as committed; each is asked for once."""
    project = this_project(os.environ)
    return cache(lambda stack: preview(project, stack, tmp_path_factory.mktemp(stack)))


@pytest.fixture(scope="module")
def analyzer() -> Iterator[Analyzer]:
    """One for all tests: each shows it all resources that it then has it judge."""
    with start_analyzer(PACK, project="trainyard", stack="prod") as started:
        yield started


def test_the_pack_has_rules_enough_and_all_are_mandatory(analyzer):
    found = analyzer.policies()
    assert [each.name for each in found] == [each.name for each in pack.RULES]
    assert [each.name for each in found if not each.is_mandatory] == []
    assert len(found) >= 55


@pytest.mark.parametrize(
    "stack",
    [
        pytest.param("dev", marks=pytest.mark.faults),
        pytest.param("test", marks=pytest.mark.faults),
        "prod",
    ],
)
def test_our_own_stacks_break_no_rule_and_hide_no_value(previews, analyzer, stack):
    """A rule that met an unknown value would say so."""
    resources = previews(stack).resources
    assert [found for each in resources for found in analyzer.analyze(each)] == []
    assert analyzer.analyze_stack(resources) == []


@pytest.mark.parametrize(
    "every", [pytest.param(9, id="ninth"), pytest.param(1, id="one", marks=pytest.mark.faults)]
)
def test_the_server_catches_a_mutant_of_every_rule(previews, analyzer, every):
    """Through gRPC, in which numbers become floats and lists become proxies."""
    prod = previews("prod")
    whole = stack_of(prod)
    for each in prod.resources:
        analyzer.analyze(each)
    missed: list[str] = []
    rules = [each for each in pack.RULES if "prod" in each.stages][::every]
    assert {type(each) for each in rules} == {ResourceRule, StackRule}
    for rule in rules:
        mutant = next(mutants_of(rule, whole))
        if rule.name not in ask(analyzer, rule, mutant, prod):
            missed.append(f"{rule.name}: {mutant.title}")
    mutants("policy pack through its server", planted=len(rules), caught=len(rules) - len(missed))
    assert missed == []


def test_what_only_a_preview_tells_of_prod_is_so(previews):
    """No analyzer is shown retain-on-delete (G7)."""
    kept = {
        each["urn"].rpartition("::")[2]
        for each in previews("prod").resources
        if each.get("retainOnDelete")
    }
    wanted = ("azure-native:storage:BlobContainer", "azure-native:keyvault:Vault")
    assert kept == {
        each["urn"].rpartition("::")[2]
        for each in previews("prod").resources
        if each["type"] in wanted
    }


@pytest.mark.parametrize(
    ("known", "found"),
    [
        ({}, ["cluster-minimum-told"]),
        ({"type": UNKNOWN_STRING}, ["cluster-minimum-told"]),
        ({"type": "Microsoft.Resources/resourceGroups"}, []),
    ],
    ids=["not told", "not known yet", "up"],
)
def test_the_minimum_is_judged_until_the_stack_is_up(previews, analyzer, known, found):
    """From then on `launch cluster resume` moves it, and the engine shows what it was moved to."""
    shown = copy.deepcopy(previews("prod").resources)
    for each in shown:
        if each["type"] == machine_learning.COMPUTE:
            each["inputs"]["properties"]["properties"]["scaleSettings"]["minNodeCount"] = 2
            break
    for each in shown:
        if each["type"] == "azure-native:resources:ResourceGroup":
            each["outputs"] = known
        analyzer.analyze(each)
    assert [each.policy for each in analyzer.analyze_stack(shown)] == found


def test_a_value_that_is_not_known_yet_counts_as_broken(previews, analyzer):
    account = next(
        each
        for each in previews("prod").resources
        if each["type"] == "azure-native:storage:StorageAccount"
    )
    inputs = {**account["inputs"], "enableHttpsTrafficOnly": UNKNOWN_BOOLEAN}
    found = analyzer.analyze({**account, "inputs": inputs})
    verdict = policy.Verdict(
        stack="prod", num_resources=1, policies=analyzer.policies(), diagnostics=found
    )
    assert [
        (row[1], "can't be known during preview" in row[3]) for row in policy.rows(verdict)
    ] == [("storage-https-only", True)]


def test_make_policy_tells_what_is_broken_and_ends_with_3(previews, tmp_path, capsys):
    resources = copy.deepcopy(previews("prod").resources)
    wrong = next(each for each in resources if each["type"] == machine_learning.COMPUTE)
    wrong["inputs"]["tags"]["min-nodes"] = "1"
    wrong["inputs"]["properties"]["properties"]["scaleSettings"]["minNodeCount"] = 1
    shown = Preview(resources=resources)

    code = policy.main(["prod"], project=copy_project(tmp_path, "prod"), show=lambda *_: shown)

    assert (code, told(capsys)) == (3, min_nodes_of("prod", wrong["urn"].rpartition("::")[2]))


@pytest.mark.faults
def test_make_policy_refuses_a_wrong_setting(tmp_path, capsys):
    """Nodes that never go are allowed by the settings, and paid for day and night."""
    project = copy_project(tmp_path, "dev")
    settings = project.root / "Pulumi.dev.yaml"
    content = yaml.safe_load(settings.read_text())
    clusters = content["config"]["trainyard:clusters"]
    name = min(clusters)
    clusters[name]["min_nodes"] = 1
    settings.write_text(yaml.safe_dump(content))

    assert policy.main(["dev"], project=project) == 3

    assert told(capsys) == min_nodes_of("dev", f"cluster-{name}-compute")


def told(capsys) -> list[list[str]]:
    """The rows of the table that was printed."""
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith("mandatory rules, 1 violation")
    assert said[2].split() == ["stack", "rule", "resource", "why", "source"]
    return [each.split(maxsplit=3) for each in said[3:]]


def min_nodes_of(stack: str, resource: str) -> list[list[str]]:
    why = "tags.min-nodes is '1', but must be 0  C6: CKV_AZURE_150 (TF)"
    return [[stack, "cluster-scales-to-zero", resource, why]]


def test_a_stack_without_settings_is_named(tmp_path, capsys):
    project = copy_project(tmp_path, "dev")
    assert policy.main(["demo"], project=project) == 1
    assert "there is no Pulumi.demo.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise ValueError('broken rule')", "broken rule"),
        ("print('hello')", "did not start"),
        ("", "did not start"),
        ("import os; os._exit(7)", "did not start"),
    ],
    ids=["raises", "prints", "ends", "dies"],
)
def test_a_pack_that_does_not_start_is_an_error(tmp_path, program, said):
    (tmp_path / "PulumiPolicy.yaml").write_text("runtime: python\n")
    (tmp_path / "__main__.py").write_text(f"{program}\n")
    with pytest.raises(EnvironmentFailure) as failure:
        with start_analyzer(tmp_path, project="trainyard", stack="dev"):
            pass
    assert said in str(failure.value)


def test_a_rule_that_breaks_is_an_error_and_no_silence(tmp_path, previews):
    (tmp_path / "__main__.py").write_text(
        "from pulumi_policy import PolicyPack, ResourceValidationPolicy\n"
        "def broken(args, report): raise KeyError('a rule of mine')\n"
        "PolicyPack('broken', [ResourceValidationPolicy('broken', 'breaks', broken)])\n"
    )
    with pytest.raises(EnvironmentFailure, match="a rule of mine"):
        with start_analyzer(tmp_path, project="trainyard", stack="dev") as started:
            started.analyze(previews("prod").resources[0])


def stack_of(shown: Preview) -> Stack:
    """The resources of a preview as rules see them."""
    resources = tuple(
        Resource(
            urn=each["urn"],
            type=each["type"],
            inputs=each.get("inputs") or {},
            protect=bool(each.get("protect")),
            made_from={
                key: tuple(urns) for key, urns in (each.get("propertyDependencies") or {}).items()
            },
        )
        for each in shown.resources
    )
    outputs = next(each["outputs"] for each in shown.resources if each["type"] == pack.STACK_TYPE)
    return Stack(name=resources[0].stack, resources=resources, outputs=outputs)


def ask(analyzer: Analyzer, rule: Rule, mutant: Mutant, shown: Preview) -> set[str]:
    """The rules that the server says are broken, asked as the engine would of such a rule."""
    raw = {each["urn"]: each for each in shown.resources}
    mutated = [
        {
            **raw.get(each.urn, {}),
            "urn": each.urn,
            "type": each.type,
            "inputs": each.inputs,
            "protect": each.protect,
            # Rules read what was declared; full outputs would only take time.
            "outputs": mutant.stack.outputs if each.type == pack.STACK_TYPE else {},
        }
        for each in mutant.stack.resources
    ]
    before = {each.urn: each for each in stack_of(shown).resources}
    changed = [
        each
        for each in mutated
        if (was := before.get(each["urn"])) is None
        or (was.inputs, was.protect) != (each["inputs"], each["protect"])
    ]
    found = [each for one in changed for each in analyzer.analyze(one)]
    if isinstance(rule, StackRule):
        found += analyzer.analyze_stack(mutated)
    # As it was, for the next one.
    for each in changed:
        if each["urn"] in raw:
            analyzer.analyze(raw[each["urn"]])
    return {each.policy for each in found}


def copy_project(root: Path, stack: str) -> Project:
    """What a preview reads of a clone, with this one's Pulumi."""
    for name in ("Pulumi.yaml", "infra/__main__.py", f"Pulumi.{stack}.yaml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, root / name)
    (root / ".venv").symlink_to(REPO / ".venv")
    return Project(root=root, cache=root / "cache")
