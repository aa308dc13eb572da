"""What is taken at a resource's creation alone is, of what our stacks declare, what references say.

| of | whose word |
| --- | --- |
| Azure ML's types | Microsoft's newest models, of our own API version (tests/environments/arm_models.py) |
| every type | what the SDK's docstrings call fixed: Microsoft's descriptions |

Provider 3 replaces a resource for what is fixed inside of one of its properties, too: its upgrade guide
says so (pulumi-azure-native, issue 3006, pull request 2970), and its generator notes these very names of
a Datastore (reports/forceNewTypes.json). That its comparison looks into a property that may be of several
types, as both of ours are, is told nowhere; the stand-in takes the stricter of both. Our settings move
none of them alone. What Azure answers could: `settled` of tools/prove_azure looks at that (U12).
"""

from __future__ import annotations

import re

import pytest

from tests import needs
from tests.environments.arm_models import Models, read_models
from tests.fakes.azure_native.kinds import KINDS, fill_path
from tests.infra.cloud_declared import STACKS, SUBSCRIPTION, declare_stack
from tests.infra.standin.test_references import sdk_text

ML = "azure-native:machinelearningservices:"
MODELS = {
    f"{ML}Workspace": "Workspace",
    f"{ML}Compute": "ComputeResource",
    f"{ML}Datastore": "Datastore",
}
FIXED = re.compile(
    r"cannot be (changed|updated)|can(not| only) be set\b|\bimmutable\b", re.IGNORECASE
)
# Of those that our stacks declare: what the provider does not replace for, and what happens then.
NOT_REPLACED = {
    ("azure-native:storage:StorageAccount", "accessTier"): "only of premium accounts; ours is Hot",
    (f"{ML}Workspace", "keyVault"): "Azure refuses it; one `generation` names both anew",
    (f"{ML}Workspace", "storageAccount"): "Azure refuses it; one `name` names both anew",
    ("azure-native:network:Subnet", "defaultOutboundAccess"): "it is False always",
}


@pytest.fixture(scope="module")
def models() -> Models:
    with needs.whole_environment():
        return read_models()


def declared(token: str) -> list[dict[str, object]]:
    """What our stacks declare of a type, by resource."""
    return [each.inputs for stack in STACKS for each in declare_stack(stack) if each.type == token]


def test_the_models_are_of_our_api_version(models):
    assert {KINDS[token].api_version for token in MODELS} == {models.api_version}
    assert {token for token in KINDS if token.startswith(ML)} == MODELS.keys()


@pytest.mark.parametrize("token", MODELS)
def test_what_azure_ml_takes_at_creation_alone_replaces_a_resource(models, token):
    kind = KINDS[token]
    found: set[str] = set()
    for inputs in declared(token):
        body = {key: each for key, each in inputs.items() if key not in kind.beside_body}
        found |= models.fixed_at_creation(MODELS[token], body)
    assert found == {*kind.create_only}


@pytest.mark.parametrize(
    ("setting", "value", "token"),
    [("location", "northeurope", f"{ML}Compute"), ("name", "other", f"{ML}Datastore")],
)
def test_a_setting_that_moves_what_is_fixed_makes_another_resource(setting, value, token):
    kind = KINDS[token]
    old, new = (
        {
            each.name: (
                {name: each.inputs["properties"][name.split(".")[1]] for name in kind.create_only},
                fill_path(kind, each.inputs, SUBSCRIPTION),
            )
            for each in declare_stack("dev", **given)
            if each.type == token
        }
        for given in ({}, {setting: value})
    )
    moved = {name for name, (fixed, _) in new.items() if fixed != old[name][0]}
    assert moved == old.keys()
    assert not {path for _, path in old.values()} & {path for _, path in new.values()}


def test_what_a_docstring_calls_fixed_replaces_a_resource_or_is_named():
    found = {
        (token, name)
        for token, kind in KINDS.items()
        for name in told_fixed(token)
        if name not in kind.create_only and any(name in inputs for inputs in declared(token))
    }
    assert found == NOT_REPLACED.keys()
    told = {token.rpartition(":")[2] for token in KINDS if "location" in told_fixed(token)}
    assert told == {"ResourceGroup", "StorageAccount", "Registry"}


def told_fixed(token: str) -> set[str]:
    """The inputs that the SDK's docstrings call fixed, by the service's names."""
    (text,) = re.findall(r'def __init__\(__self__, \*,.*?"""(.*?)"""', sdk_text(token), re.DOTALL)[
        :1
    ]
    told = re.findall(r":param pulumi\.Input\[.*\] (\w+): (.*)", text)
    assert told
    return {camel(name) for name, words in told if FIXED.search(words)}


def camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)
