"""Names the ways in which Azure may differ from what `launch` and the stacks expect of it.

A deviation is on while it is in the set `Records.deviations`: `azure.deviations.add(Deviation.X)`.
Each answer of the stand-in that one of them changes looks into that set itself; nothing else does.
"""

from __future__ import annotations

from enum import StrEnum


class Deviation(StrEnum):
    """One difference; its value is the name for reports and command lines."""

    # --- After `up`: what was made is not whole -------------------------------------------------
    DATASTORES_MISSING = "datastores-missing"  # the file stores, as after a late role
    ARTIFACT_STORE_MISSING = "artifact-store-missing"  # the one that logs lie in
    NETWORK_INACTIVE = "network-inactive"
    NETWORK_FAILED = "network-failed"  # one of its rules
    NETWORK_PROVISIONING = "network-provisioning"
    ENDPOINT_PENDING = "endpoint-pending"
    ENDPOINT_REJECTED = "endpoint-rejected"
    ROLE_MISSING = "role-missing"  # of the clusters on the registry
    ROLES_HIDDEN = "roles-hidden"  # who asks may not list assignments
    CLUSTER_FAILED = "cluster-failed"
    # --- The way there --------------------------------------------------------------------------
    PRIVATE_HOST_ONLY = "private-host-only"  # the region's host refuses a private workspace
    PRIVATE_HOST_UNTOLD = "private-host-untold"  # it does, and the workspace names that host itself
    WRONG_HOST = "wrong-host"  # the host that was asked knows no such workspace
    # --- Before the first `up` -------------------------------------------------------------------
    REGION_REFUSED = "region-refused"
    NO_AZURE_ML_IN_REGION = "no-azure-ml-in-region"
    PROVIDER_UNREGISTERED = "provider-unregistered"
    SIZE_MISSING = "size-missing"  # the region's list lacks it
    SIZE_RESTRICTED = "size-restricted"  # the region has it, this subscription does not
    # --- At `up`, refresh and `destroy` (tests/fakes/one_azure/deviations.py) -------------------
    ROLES_LATE = "roles-late"  # the first workspace is refused for a missing permission
    NETWORK_LATE = "network-late"  # clusters are refused while the managed network is made
    API_VERSION_BROKEN = "api-version-broken"
    QUOTA_REFUSES_CLUSTER = "quota-refuses-cluster"
    DELETE_NEEDS_ARGUMENT = "delete-needs-argument"
    TAGS_FIXED = "tags-fixed"  # a PUT of a cluster leaves its tags as they were
    ADDRESSES_REWRITTEN = "addresses-rewritten"  # a vault's address comes back as a range
    WORKSPACE_NAME_KEPT = "workspace-name-kept"  # a deleted workspace holds its name
    GROUP_STAYS = "group-stays"  # `destroy` ends well, and the group is there
    # --- Jobs -----------------------------------------------------------------------------------
    LOG_NAMES = "log-names"
    LOGS_AT_END = "logs-at-end"
    WORDS = "words"  # of a failed pull, of an exit code, of a limit of time
    NO_NODE_IDENTITY = "no-node-identity"
    RANKS_IN_TURN = "ranks-in-turn"
    MPIRUN_FAILS = "mpirun-fails"  # it starts no rank of our images on a second node
    BUILD_REFUSED = "build-refused"
    FOLDER_READ_ONLY = "folder-read-only"  # to the user of our images
    OLDEST_FIRST = "oldest-first"
    SECRETS_REFUSED = "secrets-refused"
    DATA_ROLE_MISSING = "data-role-missing"
    STREAM_REFUSED = "stream-refused"
    SCALE_IGNORED = "scale-ignored"  # a change is acknowledged and not made
    CANCEL_FAILS_RUN = "cancel-fails-run"
    PUT_BEGINS_AGAIN = "put-begins-again"  # a job whose name is there
    QUOTA_ZERO = "quota-zero"  # of GPUs; the cluster is there
