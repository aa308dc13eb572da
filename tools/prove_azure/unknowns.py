"""Lists what is assumed of Azure and was never tried there, with the words that tell otherwise.

docs/prove-azure.md shows this table; `python -m tools.prove_azure.pages` writes it there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """An assumption under an id that never changes.

    `source` says whose word it is, a guess included. `signs` is searched for in what Azure, Pulumi
    or `launch` says; a match means that the assumption does not hold.
    """

    id: str
    holds: str
    source: str
    otherwise: str
    signs: str = ""

    def is_denied_by(self, text: str) -> bool:
        """Tell whether a text says that the assumption does not hold."""
        return bool(self.signs) and re.search(self.signs, text, re.IGNORECASE) is not None


def _row(id_: str, holds: str, source: str, otherwise: str, signs: str = "") -> Unknown:
    return Unknown(id=id_, holds=holds, source=source, otherwise=otherwise, signs=signs)


ROWS = (
    _row(
        "U1",
        "The region takes resources of this subscription.",
        "public reports: RequestDisallowedByAzure in West Europe",
        "`trainyard:location` of another region, before the first `up`",
        r"RequestDisallowedByAzure|locationineligible|not accepting new customers"
        r"|LocationNotAvailableForResourceType|Azure ML is not in",
    ),
    _row(
        "U2",
        "Roles are in force when the workspace and its parts are created.",
        "Microsoft: a role may take 10 minutes; the wait of 5 minutes is a guess",
        "`up` again; a longer `trainyard:role_wait_s`",
        r"AuthorizationFailed|LinkedAuthorizationFailed|does not have (the )?(authorization|permission)"
        r"|roles? .*(missing|not in force)",
    ),
    _row(
        "U3",
        "The four default datastores are there after the first `up`.",
        "Azure/azure-docs issue 111772: roles that came late left them out in silence",
        "`launch env check` says which; docs/azure.md says the mend",
        r"datastores?\b.*\b(missing|not there|lacks|was not found)|workspace(artifact|blob|file)store.*not found",
    ),
    _row(
        "U4",
        "The managed network is ready before the first cluster.",
        "pulumi-azure-native issue 3212; Microsoft: how-to-managed-network",
        "`up` again once the network is active",
        r"managed ?network.*(fail|not (active|ready)|inactive|provisioning)|ManagedNetwork\w*(Fail|Error|NotReady)",
    ),
    _row(
        "U5",
        "The workspace answers at the host of its `discoveryUrl`.",
        "Microsoft: how-to-custom-dns",
        "`pulumi up`, then export the environment again",
        r"denied based on workspace private link|workspace private link configuration",
    ),
    _row(
        "U6",
        "A cluster is deleted without `underlyingResourceAction`.",
        "REST requires the parameter, the provider does not send it; a guess that Azure has a default",
        "delete the cluster in the studio, then `pulumi refresh`",
        r"underlyingResourceAction",
    ),
    _row(
        "U7",
        "A PUT of a cluster changes its tags.",
        "a guess; azurerm treats them as fixed",
        "the tag `min-nodes` keeps its first value; `pause` and `resume` read it",
        r"tags? .*(cannot|not) be (changed|updated|modified)",
    ),
    _row(
        "U8",
        "The workspace's API version 2025-12-01 is served.",
        "the provider's default; azurerm issue 22150 reports an error of 2025-09-01",
        "the fallback version in docs/azure.md",
        r"NoRegisteredProviderFound|InternalServerError",
    ),
    _row(
        "U9",
        "The committed sizes can be had by this subscription.",
        "Azure's lists; restrictions are the subscription's own",
        "another `size`, or a request to Azure's support",
        r"SkuNotAvailable|NotAvailableForSubscription|not available for (this |the )?subscription"
        r"|VmSizeNotSupported|restricted",
    ),
    _row(
        "U10",
        "A cluster without quota is created, and its jobs wait with the reason.",
        "Microsoft: how-to-manage-quotas; the words are a guess",
        "take the cluster out of the settings",
        r"ClusterCoreQuotaReached.*(create|Compute)|QuotaExceeded.*Compute",
    ),
    _row(
        "U11",
        "Private endpoints of the managed network are approved without a hand.",
        "Microsoft: how-to-managed-network, with the role of an approver",
        "approve them in the portal: Networking, private endpoint connections",
        r"private ?endpoint.*(pending|rejected|disconnected)|connection.*\bpending\b",
    ),
    _row(
        "U12",
        "A refresh right after `up` finds nothing changed.",
        "a guess for `ip_rules`, tags, rules of the managed network and what is fixed at the creation of a"
        " cluster or a datastore, where a change would replace it",
        "`launch env check` names what would be replaced; the property goes into `ignore_changes`",
    ),
    _row(
        "U13",
        "After `destroy` and a purge of the vault, `up` takes every name again.",
        "Microsoft: concept-soft-delete for workspaces, soft-delete-overview for vaults",
        "another `trainyard:generation`",
        r"already exists in deleted state|Soft-deleted workspace|(Vault|Account|Registry)\w*Already(Exists|Taken|InUse)",
    ),
    _row(
        "U14",
        "`destroy` leaves no resource group behind.",
        "Microsoft: deleting a group deletes what is in it",
        "`az group delete`",
        r"ResourceGroupDeletion|cannot perform delete operation|resource group .*still exists",
    ),
    _row(
        "U15",
        "The workspace builds an image though its stores have no keys.",
        "Microsoft: `image_build_compute` for closed networks; that its identity may push is a guess",
        "`launch image push`",
        r"image cannot be built|image ?build(Failure)?\b.*(fail|error)|ImageBuildFailure",
    ),
    _row(
        "U16",
        "Azure ML's nodes start our image, and its ranks may write the working folder.",
        "ours runs as root, as Microsoft's base images do; that this is enough is a guess",
        "docs/images.md, `On Azure ML's nodes`",
        r"Permission denied|permission .*working folder",
    ),
    _row(
        "U17",
        "Azure ML's `mpirun` starts ranks of our image on a second node.",
        "ours has sshd and Open MPI 5, as most of Microsoft's base images; Azure ML's line is a guess",
        "`launcher: torch`",
        r"prted: command not found|orted: command not found|ORTE (was unable|does not know)"
        r"|PRTE|connection refused|unable to reliably start",
    ),
    _row(
        "U18",
        "Ranks of every node get tokens of the cluster's identity.",
        "a guess for nodes other than the first: `mpirun` has to hand `MSI_ENDPOINT` on",
        "`launcher: torch`",
        r"identity gets no token|Identity not found|ManagedIdentityCredential",
    ),
    _row(
        "U19",
        "`mpirun` deals ranks to nodes in blocks.",
        "a guess",
        "one process a node",
    ),
    _row(
        "U20",
        "A TensorFlow job takes two workers on two nodes with `TF_CONFIG`.",
        "Microsoft: how-to-train-distributed-gpu",
        "`launcher: torch`",
        r"TF_CONFIG",
    ),
    _row(
        "U21",
        "A job that is told to leave with code 75 is seen as preempted, and its next attempt finds"
        " its checkpoint.",
        "the exit code is ours; Azure ML's words for it are a guess",
        "`launch rerun RUN --resume`",
    ),
    _row(
        "U22",
        "Azure ML tells the exit code of a failed program in the words that `launch` reads.",
        "a guess",
        "a row of `jobs/engines/azure_ml/states.py`",
    ),
    _row(
        "U23",
        "Azure ML tells an image that cannot be pulled in the words that `launch` reads.",
        "a guess; `manifest unknown` is the registry's",
        "a row of `jobs/engines/azure_ml/states.py`",
    ),
    _row(
        "U24",
        "Azure ML tells a limit of time in the words that `launch` reads.",
        "a guess",
        "a row of `jobs/engines/azure_ml/states.py`",
    ),
    _row(
        "U25",
        "Log files of ranks have the names that `launch` reads.",
        "azure-ai-ml's own pattern, Microsoft's test data",
        "`launch logs --preparation`, the studio; a row of `jobs/engines/azure_ml/log_files.py`",
        r"no (log )?lines|no logs? (yet|were)",
    ),
    _row(
        "U26",
        "Lines of a log can be read while the job runs.",
        "azure-ai-ml reads them so; how often Azure ML flushes is a guess",
        "lines come at the end",
    ),
    _row(
        "U27",
        "A secret of the vault reaches the ranks.",
        "Microsoft: Key Vault Secrets User on a secret; its delay is a guess",
        "the stack's `secrets` again, after some minutes",
        r"SecretNotFound|vault\.azure\.net.*(Forbidden|403)|secret .*(refused|not be read|forbidden)",
    ),
    _row(
        "U28",
        "A streamed input is read by ranges with the identity's token.",
        "Microsoft: authorize-access-azure-active-directory",
        "`mode: download`",
        r"HTTP Error 40[13]",
    ),
    _row(
        "U29",
        "A dataset is pushed within minutes of the first `up`.",
        "Microsoft: a role may take 10 minutes",
        "wait, and push again",
        r"store .*refuses access|AuthorizationPermissionMismatch",
    ),
    _row(
        "U30",
        "The minimum and maximum of a cluster change in place.",
        "REST: Compute PATCH, scaleSettings",
        "the studio",
        r"InvalidScaleSettings|PropertyChangeNotAllowed",
    ),
    _row(
        "U31",
        "Nodes above the minimum leave after the idle time.",
        "Microsoft: how-to-create-attach-compute-cluster",
        "`launch cluster pause`",
    ),
    _row(
        "U32",
        "A list of runs has the newest first, and a run at once.",
        "that is its habit, and promised nowhere",
        "`launch ls --all`; the whole id",
    ),
    _row(
        "U33",
        "A cancelled run ends as cancelled, and its nodes are free.",
        "REST: Jobs_Cancel",
        "the studio",
    ),
    _row(
        "U34",
        "Every provider that a stack needs is registered.",
        "the list is ours, from the types of the resources",
        "`az provider register --namespace NAME`",
        r"MissingSubscriptionRegistration|not ?registered",
    ),
    _row(
        "U35",
        "Microsoft's two images that the steps name can be pulled, and have Python 3.9 or newer.",
        "public job files of 2025 and 2026 name them",
        "another image in `tools/prove_azure/jobs`",
        r"image cannot be pulled|needs Python|python\b.*not found",
    ),
    _row(
        "U36",
        "A second PUT of a job starts nothing, while it is on and when it is over.",
        "REST: Jobs_CreateOrUpdate has an update case; azure-ai-ml 1.35.2 says in its source that what"
        " differs is refused; that it starts nothing is a guess",
        "after a crash, `launch ls` and the studio before the same command",
        r"was begun again",
    ),
)
BY_ID = {row.id: row for row in ROWS}


def find_denied(text: str, among: tuple[str, ...] = ()) -> Unknown | None:
    """Find the first assumption that a text denies; those of `among` are asked first."""
    order = [*(BY_ID[id_] for id_ in among), *ROWS]
    return next((row for row in order if row.is_denied_by(text)), None)
