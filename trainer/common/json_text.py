"""Reads JSON that somebody else may have written."""

from __future__ import annotations

import json
from typing import Any


def parse_json(data: bytes) -> Any:
    """Parse JSON; raises ValueError for what is none, or nested too deeply to be read."""
    try:
        return json.loads(data)
    except RecursionError:
        message = "it is nested too deeply"
        raise ValueError(message) from None
