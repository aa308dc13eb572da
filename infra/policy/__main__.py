"""Serves the policy pack to Pulumi: `pulumi preview -s prod --policy-pack infra/policy`."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Serve the pack until the engine has judged its deployment."""
    # Pulumi puts this folder first on the path: `import stack` would find ours.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

    from pulumi_policy import PolicyPack

    from infra.policy import pack

    PolicyPack(name=pack.NAME, policies=pack.policies())


main()
