"""The rules as data: complete, documented, and silent on stacks that are set differently."""

from __future__ import annotations

import pytest

from infra.policy import conditions, document, pack, waivers
from infra.policy.conditions import Condition
from infra.policy.rules import Resource, Stack, stage_of
from tests.infra.policy.judging import broken, declared

# Of the checklist that the stacks follow: storage, vault, registry, workspace, clusters, insights,
# and roles, money and deletion.
ROWS = {
    *(f"S{number}" for number in range(1, 23)),
    *(f"K{number}" for number in range(1, 10)),
    *(f"A{number}" for number in range(1, 9)),
    *(f"W{number}" for number in range(1, 10)),
    *(f"C{number}" for number in range(1, 10)),
    *(f"I{number}" for number in range(1, 4)),
    *(f"G{number}" for number in range(1, 10)),
}
GROUPS = {
    "practitioners": ["00000000-0000-4000-8000-000000000001"],
    "operators": ["00000000-0000-4000-8000-000000000001"],
    "readers": ["00000000-0000-4000-8000-000000000002"],
}


def test_every_row_of_the_checklist_has_a_rule_or_a_reason():
    judged = {each.row for each in pack.RULES}
    assert judged | set(waivers.WAIVED_ROWS) == ROWS
    assert judged & set(waivers.WAIVED_ROWS) == set()
    assert set(waivers.WAIVED_PARTS) <= judged


def test_every_rule_names_its_sources_and_no_waived_one():
    assert [each.name for each in pack.RULES if not each.sources] == []
    cited = {id_ for each in pack.RULES for id_ in each.sources.split(", ")}
    assert cited & set(waivers.WAIVERS) == set()


def test_the_page_shows_the_rules_as_they_are():
    page = document.PAGE.read_text()
    assert document.fill(page) == page, "run: .venv/bin/python -m infra.policy.document"


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        ("dev", "dev"),
        ("dev-alice", "dev"),
        ("test-2", "test"),
        ("prod-eu", "prod"),
        ("staging", "prod"),
        ("Dev", "prod"),
        ("devel", "prod"),
        ("", "prod"),
    ],
)
def test_a_stack_of_no_known_stage_is_held_to_what_prod_is(stack, stage):
    assert stage_of(stack) == stage


@pytest.mark.parametrize(
    ("condition", "holds", "holds_not"),
    [
        (conditions.equal(True), [True], [False, None, "true", 1]),
        (conditions.equal(False), [False], [True, None, 0, ""]),
        (conditions.equal("Disabled"), ["Disabled", "disabled"], [None, "", "Enabled", False]),
        (conditions.at_least(7), [7, 7.0, 365], [6, 6.9, None, "7", True, float("nan")]),
        (conditions.between(1, 4), [1, 4.0], [0, 5, None, "2", False]),
        (
            conditions.lasting_at_most("PT5M"),
            ["PT5M", "PT300S", "PT1S", "00:05:00"],
            ["PT5M1S", "P1D", "PT0S", "PT", "P", "", None, 300, "PT-1M", "forever"],
        ),
        (
            conditions.lasting_at_most("1.00:00:00"),
            ["1.00:00:00", "0.23:59:59", "00:30:00", "PT24H"],
            ["1.00:00:01", "30.00:00:00", "00:00:00", None],
        ),
        (conditions.matching("[a-z]{3}"), ["abc"], ["abcd", "ab", "abc\n", None, 3]),
        (conditions.given(), ["x", ["x"]], ["", None, []]),
        (conditions.absent(), [None], [False, "", []]),
        (conditions.empty(), [None, []], [["x"], False, 0]),
    ],
    ids=lambda each: each.text if isinstance(each, Condition) else "",
)
def test_conditions_hold_where_they_should(condition, holds, holds_not):
    assert [each for each in holds if not condition.holds(each)] == []
    assert [each for each in holds_not if condition.holds(each)] == []


@pytest.mark.parametrize(
    ("addresses", "narrow"),
    [
        ("198.51.100.7", True),
        ("203.0.113.0/24", True),
        ("10.1.0.0/16", True),
        ("10.0.0.0/15", False),
        ("0.0.0.0/0", False),
        ("::/0", False),
        ("", False),
        (None, False),
    ],
)
def test_a_firewall_lets_in_narrow_ranges_only(addresses, narrow):
    assert conditions.is_narrow(addresses) is narrow


@pytest.mark.parametrize(
    ("stack", "changed"),
    [
        ("dev-alice", {"people": GROUPS}),
        ("dev", {"network": "private", "allowed_ips": None}),
        ("dev", {"allowed_ips": ["20.50.2.0/24"], "generation": 12}),
        ("test-2", {"people": GROUPS, "secrets": ["wandb-key"]}),
        ("prod-eu", {"people": GROUPS, "secrets": ["wandb-key"], "generation": 99}),
    ],
    ids=["people", "private", "allowed", "secrets", "everything"],
)
def test_no_alarm_on_what_the_settings_allow(stack, changed):
    assert broken(declared(stack, **changed)) == set()


def test_a_stack_of_another_kind_is_not_judged():
    local = Resource(
        urn="urn:pulumi:local::trainyard::trainyard:local:Platform::local",
        type="trainyard:local:Platform",
        inputs={},
        protect=False,
    )
    assert broken(Stack(name="local", resources=(local,))) == set()


def test_an_empty_stack_on_azure_lacks_what_every_stack_has():
    group = Resource(
        urn="urn:pulumi:prod::trainyard::azure-native:resources:ResourceGroup::cloud-group",
        type="azure-native:resources:ResourceGroup",
        inputs={},
        protect=True,
    )
    assert broken(Stack(name="prod", resources=(group,))) == {
        "alerts-mailed",
        "budget-declared",
        "policy-denies-others",
        "storage-old-checkpoints-cool",
        "tags",
    }
