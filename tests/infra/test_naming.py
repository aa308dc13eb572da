"""Names are plain, stay within what Azure takes, and tell stacks apart."""

from __future__ import annotations

import re
import uuid

import pytest

from infra.naming import Names, physical_name

SUBSCRIPTION = "11111111-1111-4111-8111-111111111111"

# https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
RULES = {
    "resource_group": r"[-\w.()]{1,89}[-\w()]",
    "data_account": r"[a-z0-9]{3,24}",
    "workspace_account": r"[a-z0-9]{3,24}",
    "key_vault": r"(?!.*--)[a-zA-Z][a-zA-Z0-9-]{1,22}[a-zA-Z0-9]",
    "registry": r"[a-zA-Z0-9]{5,50}",
    "workspace": r"[a-zA-Z0-9][\w-]{2,32}",
    "log_analytics": r"[a-zA-Z0-9][a-zA-Z0-9-]{2,61}[a-zA-Z0-9]",
    "app_insights": r"[^%&\\?/]{0,259}[^%&\\?/ .]",
    "network": r"[a-zA-Z0-9][\w.-]{0,62}\w",
    "workspace_identity": r"[a-zA-Z0-9][\w-]{2,127}",
    "audit": r"[a-zA-Z0-9][a-zA-Z0-9-]{2,61}[a-zA-Z0-9]",
    "action_group": r"[^<>%&:\\?/*]{1,259}[^<>%&:\\?/* .]",
    "budget": r"[a-zA-Z0-9][\w-]{0,62}",
}


def names(prefix="yard", stack="dev", generation=1, subscription_id=SUBSCRIPTION):
    return Names(prefix=prefix, stack=stack, generation=generation, subscription_id=subscription_id)


@pytest.mark.parametrize("stack", ["dev", "prod", "prod-seventeen-17"])
@pytest.mark.parametrize(("prefix", "generation"), [("ya", 1), ("longestp", 99)])
@pytest.mark.parametrize("kind", sorted(RULES))
def test_azure_takes_every_name(kind, prefix, generation, stack):
    name = getattr(names(prefix, stack, generation), kind)
    assert re.fullmatch(RULES[kind], name)


def test_names_tell_what_they_are():
    made = names()
    digest = made.digest
    assert {kind: getattr(made, kind) for kind in RULES} == {
        "resource_group": "rg-yard-dev",
        "data_account": f"styarddevdata{digest}",
        "workspace_account": f"styarddevml{digest}",
        "key_vault": f"kv-yard-dev-1-{digest}",
        "registry": f"cryarddev{digest}",
        "workspace": "mlw-yard-dev-1",
        "log_analytics": "log-yard-dev",
        "app_insights": "appi-yard-dev",
        "network": "vnet-yard-dev",
        "workspace_identity": "id-yard-dev-workspace",
        "audit": "log-yard-dev-audit",
        "action_group": "ag-yard-dev",
        "budget": "budget-yard-dev",
    }
    assert made.identity("gpu") == "id-yard-dev-gpu"
    assert made.alert("quota") == "alert-yard-dev-quota"


def test_ids_are_told_before_anything_is_made():
    made = names()
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg-yard-dev"
    assert made.group_id == group
    assert made.id_of("Microsoft.KeyVault/vaults", "v") == (
        f"{group}/providers/Microsoft.KeyVault/vaults/v"
    )
    assert made.role_definition_id("abc") == (
        f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Authorization/roleDefinitions/abc"
    )


def test_names_of_all_azure_differ_by_stack_and_by_subscription():
    of_all_azure = ("data_account", "workspace_account", "key_vault", "registry")
    all_names = [names(), names(stack="dev-alice"), names(subscription_id=SUBSCRIPTION[::-1])]
    made = [getattr(each, kind) for each in all_names for kind in of_all_azure]
    assert len(made) == len(set(made))


def test_a_role_assignment_has_one_name_for_one_scope_role_and_principal():
    made = names()
    name = made.assignment_name("scope", "role", "cluster")
    assert name == names().assignment_name("scope", "role", "cluster")
    assert str(uuid.UUID(name)) == name
    others = {
        made.assignment_name("scope", "role", "workspace"),
        made.assignment_name("scope", "other", "cluster"),
        made.assignment_name("other", "role", "cluster"),
        names(stack="test").assignment_name("scope", "role", "cluster"),
    }
    assert len(others | {name}) == 5


def test_no_cluster_is_called_a_dash_and_a_number():
    """Azure ML refuses such a computeName; six hex digits are all digits 6 times in 100."""
    rule = re.compile(r"[a-zA-Z](?![a-zA-Z0-9-]*-\d+$)[a-zA-Z0-9-]{2,15}")
    made = [physical_name("gpu", {"n": number}) for number in range(2000)]
    assert [name for name in made if not rule.fullmatch(name)] == []
    assert len(set(made)) == len(made)
    # These would have been: their digests begin with 457300c7a6 and 6657392716d.
    assert physical_name("c", {"n": 20}) == "c-57300c"
    assert physical_name("c", {"n": 85}) == "c-92716d"
