"""Lists the rules that are left out on purpose, each with its reason, for docs/policy.md."""

from __future__ import annotations

from collections.abc import Mapping

_OWN_KEYS = (
    "keys of one's own have to be made, rotated and recovered by somebody, and a lost one is lost "
    "data: the platform's keys encrypt everything, in prod twice; opt in by a rule of your own"
)
_DEFENDER = "Defender's plans belong to the subscription, which no stack owns"

_CONSTANT = (
    "no setting moves it, and the values that a stack declares are compared whole with those that "
    "were reviewed (tests/infra/cloud_expected)"
)

# Rules of others (Checkov's, PSRule's, the first block of an Azure Policy's id) that we break.
WAIVERS: Mapping[str, str] = {
    "CKV_AZURE_84": _DEFENDER,
    "CKV_AZURE_86": _DEFENDER,
    "CKV_AZURE_87": _DEFENDER,
    "CKV_AZURE_164": "Azure takes content trust away on 2028-03-31: images are pinned by digest",
    "CKV_AZURE_165": "a second region for images costs as much again: they can be pushed again",
    "CKV_AZURE_166": "quarantine blocks every pull until a scanner has spoken, and is a preview",
    "CKV_AZURE_237": "a private registry has its endpoints in our network already",
    "AZR-000004": "as CKV_AZURE_165",
    "AZR-000008": "as CKV_AZURE_166",
    "AZR-000009": "as CKV_AZURE_164",
    "AZR-000425": "logs help to explain the past; no run waits for them while a region is away",
    "5b9159ae": _OWN_KEYS,
    "6fac406b": _OWN_KEYS,
    "7f40cee6": _OWN_KEYS,
    "ba769a63": _OWN_KEYS,
    "e413671a": "wants v1LegacyMode on behind a private link, which turns off the API that `launch` "
    "speaks: its calls go to Azure Resource Manager, in public, and no data with them",
}
# Rows of the checklist that no rule of this pack judges.
WAIVED_ROWS: Mapping[str, str] = {
    "S6": f"shared keys are off, so that nothing else is left; {_CONSTANT}",
    "S12": _CONSTANT,
    "S20": "Azure refuses a wrong name, and settings only take what makes right ones",
    "K6": _CONSTANT,
    "W7": _CONSTANT,
    "A6": "with tokens of ARM's audience refused App Service, Container Apps (MicrosoftDocs/"
    "azure-docs 128528) and AKS (Azure/AKS 4560) cannot pull, and an Azure ML identity gets no "
    "others (Azure/azure-cli 33698): prod's clusters could hardly either",
    "K8": _OWN_KEYS,
    "G4": "a stack declares no SAS: S5 leaves user delegation as the only kind, S10 bounds its life",
}
# Halves of a row that has rules, for what they cannot see.
WAIVED_PARTS: Mapping[str, str] = {
    "G1": "a cluster reads the code and logs of all jobs, and writes the logs of all: Azure ML keeps "
    "them in one account and container, and does not document the paths that a node writes. It may "
    "delete a container, too: a condition of a role covers blobs alone",
    "G2": "the workspace's identity is Contributor on account, vault and registry, so it may change "
    "their firewalls: Azure ML's own table demands it (how-to-identity-based-service-authentication)",
    "C4": "no built-in Azure Policy refuses a public address that somebody gives nodes by hand",
    "C8": "whether a trainer checkpoints is not a stack's to know: in prod either priority is right",
    "G7": "the engine shows an analyzer no retain-on-delete: a test reads it from prod's preview",
    "W8": _OWN_KEYS,
}
