"""Physical names: the stable name plus a short hash of what cannot change in place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping


def physical_name(name: str, fixed: Mapping[str, str | int]) -> str:
    """`gpu` becomes `gpu-1a2b3c`: a change of what is fixed makes another thing beside it."""
    digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()
    return f"{name}-{digest[:6]}"
