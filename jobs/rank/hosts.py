"""Says which hosts may see a token of ours: it opens all that we can, at whomever it is shown to.

The one place for it in `jobs`: what writes and reads from here asks it, and what does on a node.
"""

from __future__ import annotations

import re

STORES, VAULTS = "blob.core.windows.net", "vault.azure.net"


def is_azures(url: str, domain: str) -> bool:
    """Tell whether a URL is that of an account in this domain of Azure's, over TLS."""
    address = "/".join(url.split("/")[:3])
    return re.fullmatch(rf"https://[a-z0-9.-]+\.{re.escape(domain)}", address) is not None
