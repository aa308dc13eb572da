"""Creates that were cut off become resources to look at, where their id can be known."""

import pytest

from infra.pending_creates import PATHS, PREFIX, adopt, declare_again, find_unsettled, resource_id
from tests.fakes.azure_native.kinds import KINDS, fill_path

IDENTIFIER = "/subscriptions/s/resourceGroups/g"


def resource(kind, name, **inputs):
    urn = f"urn:pulumi:dev::trainyard::{kind}::{name}"
    return {"urn": urn, "type": kind, "inputs": inputs}


def creating(declared):
    return {"type": "creating", "resource": declared}


GROUP = resource("azure-native:resources:ResourceGroup", "cloud-group", resourceGroupName="g")
MADE_GROUP = {**GROUP, "id": IDENTIFIER, "outputs": {"name": "g"}}
VAULT = resource("azure-native:keyvault:Vault", "v", resourceGroupName="g", vaultName="vault-1")
NEW_VAULT = {**VAULT, "inputs": {**VAULT["inputs"], "vaultName": "vault-2"}}
AT = f"{IDENTIFIER}/providers/Microsoft.KeyVault/vaults"


def test_a_create_goes_behind_what_it_depends_on_with_its_id_and_nothing_known_of_it():
    found = adopt({"resources": [MADE_GROUP], "pending_operations": [creating(VAULT)]})

    made = {**VAULT, "id": f"{AT}/vault-1", "outputs": {}}
    assert found == {"resources": [MADE_GROUP, made], "pending_operations": []}


def test_a_replacement_stands_before_the_one_that_is_still_to_be_deleted():
    old = {**VAULT, "id": f"{AT}/vault-1", "outputs": {}}
    user = resource("a", "user")
    found = adopt({"resources": [old, user], "pending_operations": [creating(NEW_VAULT)]})

    made = {**NEW_VAULT, "id": f"{AT}/vault-2", "outputs": {}}
    assert found["resources"] == [made, {**old, "delete": True}, user]


def test_a_replacement_takes_the_place_of_one_that_is_deleted_already():
    old = {**VAULT, "id": f"{AT}/vault-1", "outputs": {}, "pendingReplacement": True}
    found = adopt({"resources": [old], "pending_operations": [creating(NEW_VAULT)]})
    assert [each["id"] for each in found["resources"]] == [f"{AT}/vault-2"]


def test_the_first_resource_of_all_is_found_by_what_the_platform_says():
    platform = resource("trainyard:cloud:Platform", "cloud", subscriptionId="s")
    found = adopt({"resources": [platform], "pending_operations": [creating(GROUP)]})
    assert found["resources"] == [
        platform,
        {**GROUP, "id": IDENTIFIER, "outputs": {}},
    ]


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(creating(GROUP), id="subscription-unknown"),
        pytest.param({"type": "updating", "resource": MADE_GROUP}, id="no-create"),
        pytest.param(creating(resource("pulumi-python:dynamic:A", "a")), id="other-provider"),
        pytest.param(creating(resource("azure-native:web:WebApp", "a")), id="other-type"),
        pytest.param(
            creating(resource(VAULT["type"], "v", resourceGroupName="g", vaultName={"4d": "1b"})),
            id="secret-name",
        ),
    ],
)
def test_what_cannot_be_known_stays_pending(operation):
    # Without a resource no subscription is known.
    resources = [] if operation == creating(GROUP) else [MADE_GROUP]
    deployment = {"resources": resources, "pending_operations": [operation]}
    assert adopt(deployment) == deployment


def test_a_scope_says_the_subscription_and_begins_an_id():
    inputs = {"scope": IDENTIFIER, "lockName": "keep"}
    lock = resource("azure-native:authorization:ManagementLockByScope", "lock", **inputs)
    found = adopt({"pending_operations": [creating(lock), creating(VAULT)]})
    assert [each["id"] for each in found["resources"]] == [
        f"{IDENTIFIER}/providers/Microsoft.Authorization/locks/keep",
        f"{AT}/vault-1",
    ]


@pytest.mark.parametrize("token", KINDS)
def test_an_id_is_built_like_the_path_that_microsofts_client_puts_to(token):
    """tests/infra/standin/test_references.py holds the stand-in's paths to Microsoft's clients."""
    kind = KINDS[token]
    scope = f"{IDENTIFIER}/providers/Microsoft.Storage/storageAccounts/a"
    whole = {"scope", "resourceUri"}
    inputs = {name: scope if name in whole else f"its-{name}" for name in kind.parameters}
    assert resource_id({"type": token, "inputs": inputs}, "s") == fill_id(kind, inputs)


def test_every_type_of_ours_has_a_path_and_no_other():
    assert {f"{PREFIX}{name}" for name in PATHS} == KINDS.keys()


def fill_id(kind, inputs):
    return f"/{fill_path(kind, inputs, 's').lstrip('/')}"


def test_what_a_refresh_has_added_to_the_inputs_is_taken_away_and_the_tags_with_it():
    tagged = {**VAULT, "inputs": {**VAULT["inputs"], "tags": {"stack": "dev"}}}
    seen = {**tagged, "inputs": {**tagged["inputs"], "sku": "standard"}, "outputs": {"name": "v"}}
    old = {**seen, "delete": True}
    found = declare_again({"resources": [seen, old, MADE_GROUP]}, [creating(tagged)])
    assert found == {"resources": [{**seen, "inputs": VAULT["inputs"]}, old, MADE_GROUP]}


def test_unsettled_is_what_was_cut_off_and_what_nobody_has_looked_at():
    unseen = {**VAULT, "id": f"{AT}/vault-1", "outputs": {}}
    cut_off = {"type": "updating", "resource": MADE_GROUP}
    found = find_unsettled({"resources": [MADE_GROUP, unseen], "pending_operations": [cut_off]})
    assert found == [cut_off, creating(unseen)]
