"""Look at the quotas that an environment's clusters count against, and lay them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import Environment
    from jobs.engines.azure_ml.quota import QuotaCheck


def quotas_of(environment: Environment | None) -> list[QuotaCheck]:
    """Check each quota; none without an environment or on this machine.

    Raises EnvironmentFailure if Azure does not answer.
    """
    from jobs.engines.azure_ml.client import ArmClient
    from jobs.engines.azure_ml.quota import check_clusters

    if environment is None or environment.workspace.is_folder:
        return []
    return check_clusters(ArmClient(environment))


def quota_table(checks: Sequence[QuotaCheck]) -> str:
    """Lay out the quotas, one a row."""
    header = ["QUOTA", "STATE", "LIMIT", "USED", "NEEDED", "SHORT", "CLUSTERS"]
    rows = [
        [
            each.quota,
            "FAILED" if not each.ok else "ok" if not each.short else "short",
            *(str(number) for number in (each.limit, each.used, each.needed, each.short)),
            ", ".join(each.clusters),
        ]
        for each in checks
    ]
    return console.table(header, rows, right=(2, 3, 4, 5))
