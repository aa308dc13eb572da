"""What the stand-in holds of each resource type is what references say that are not ours.

| of a type | whose word |
| --- | --- |
| API version, names of inputs and of what is answered | the installed SDK, pulumi_azure_native (its own text) |
| path and its parameters | Microsoft's clients of the models' lock: an operation that PUTs to that path |
| what replaces a resource | `REPLACED`, below; of Azure ML's types test_create_only.py |
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fakes.azure_native.kinds import KINDS
from tests.fakes.azure_native.tables import read_tables


class Word(NamedTuple):
    """The inputs whose change replaces a resource, beside those of its path; `read` is where.

    A date is that of an API version: the schema that the provider's generator wrote for it
    (github.com/danielrbradley/pulumi-azure-native-schema at 3b272d2: `willReplaceOnChanges`), which is
    older than ours where it is not KINDS'. Of what is inside of a property it says nothing: the
    generator marks that apart (provider/pkg/gen/properties.go). `table` is the provider's own, which
    holds for all versions (pulumi/pulumi-azure-native at 1b7112a, provider/pkg/gen/replacement.go).
    """

    inputs: set[str]
    read: str


REPLACED = {
    "applicationinsights:Component": Word({"applicationType", "location"}, "2020-02-02"),
    "authorization:ManagementLockByScope": Word(set(), "2020-05-01"),
    "authorization:PolicyAssignment": Word(set(), "2022-06-01"),
    "authorization:RoleAssignment": Word({"principalId", "scope"}, "table"),
    "consumption:Budget": Word(set(), "2021-10-01"),
    "containerregistry:Registry": Word({"location"}, "2023-01-01-preview"),
    "keyvault:Vault": Word(set(), "2023-02-01"),
    "managedidentity:UserAssignedIdentity": Word({"location"}, "2023-01-31"),
    "monitor:ActionGroup": Word({"location"}, "2023-01-01"),
    "monitor:DiagnosticSetting": Word(set(), "2021-05-01-preview"),
    "monitor:MetricAlert": Word({"location"}, "2018-03-01"),
    "network:NetworkSecurityGroup": Word(set(), "2022-09-01"),
    "network:PrivateDnsZoneGroup": Word(set(), "2022-09-01"),
    "network:PrivateEndpoint": Word({"subnet"}, "table"),
    "network:Subnet": Word(set(), "table"),
    "network:VirtualNetwork": Word({"location"}, "table"),
    "operationalinsights:Workspace": Word({"location"}, "2022-10-01"),
    "privatedns:PrivateZone": Word({"location"}, "2020-06-01"),
    "privatedns:VirtualNetworkLink": Word({"location"}, "2020-06-01"),
    "resources:ResourceGroup": Word({"location"}, "table"),
    "storage:BlobContainer": Word(set(), "table"),
    "storage:BlobServiceProperties": Word(set(), "2022-09-01"),
    "storage:FileServiceProperties": Word(set(), "2022-09-01"),
    "storage:ManagementPolicy": Word(set(), "2022-09-01"),
    "storage:StorageAccount": Word({"isHnsEnabled", "location"}, "table"),
}


@cache
def sdk_text(token: str) -> str:
    """The SDK's source of a resource type."""
    _, module, name = token.split(":")
    package = find_spec("pulumi_azure_native")
    assert package is not None
    assert package.origin is not None
    file = re.sub(r"(?<=.)(?=[A-Z])", "_", name).lower()
    text = Path(package.origin).with_name(module).joinpath(f"{file}.py").read_text()
    assert f'@pulumi.type_token("{token}")' in text
    return text


def sdk_names(token: str, *names_of_class: str) -> set[str]:
    """What a class of the SDK gives, by the service's names; it has one of these names."""
    (found,) = (
        each
        for each in ast.parse(sdk_text(token)).body
        if isinstance(each, ast.ClassDef) and each.name in names_of_class
    )
    names: set[str] = set()
    for each in found.body:
        text = [ast.unparse(line) for line in getattr(each, "decorator_list", ())]
        if not isinstance(each, ast.FunctionDef) or "_builtins.property" not in text:
            continue
        told = re.search(r"pulumi\.getter\(name='(\w+)'\)", " ".join(text))
        names.add(told[1] if told else each.name)
    return names


@pytest.mark.parametrize("token", KINDS)
def test_the_version_is_the_one_that_the_sdk_asks_for(token):
    told = set(re.findall(r"Uses Azure REST API version ([\w-]+)\.", sdk_text(token)))
    assert told == {KINDS[token].api_version}


@pytest.mark.parametrize("token", KINDS)
def test_the_path_is_one_that_microsofts_client_puts_to(token):
    rules = [name.replace("_", "").lower() for name, _ in read_tables()[token]["parameters"]]
    expected = [name.lower() for name in KINDS[token].parameters]
    if "{subscriptionId}" in KINDS[token].path:
        expected.append("subscriptionid")
    assert sorted(rules) == sorted(expected)


@pytest.mark.parametrize("token", KINDS)
def test_what_is_named_is_known_to_the_sdk(token):
    kind, name = KINDS[token], token.rpartition(":")[2]
    # The SDK calls it so where a value of another type has the first name.
    inputs = sdk_names(token, f"{name}Args", f"{name}InitArgs")
    fixed = {each.split(".")[0] for each in kind.create_only}
    assert {*kind.parameters, *kind.query, *fixed} - inputs == set()
    assert {output.split(".")[0] for output in kind.outputs} - sdk_names(token, name) == set()


def test_what_replaces_a_resource_is_what_the_provider_says():
    held = {
        token.removeprefix("azure-native:"): {*kind.create_only}
        for token, kind in KINDS.items()
        if not token.startswith("azure-native:machinelearningservices:")
    }
    told = {token: word.inputs for token, word in REPLACED.items()}
    assert held == told
    # A date that is not ours is an older one.
    for token, word in REPLACED.items():
        assert word.read == "table" or word.read <= KINDS[f"azure-native:{token}"].api_version
