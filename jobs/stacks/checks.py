"""What a check of this machine found, and the command that corrects it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Health(StrEnum):
    """Result of a check; only `missing` makes the doctor end with 1."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


class Check(Struct, frozen=True, kw_only=True):
    """A checked part, the finding, and the exact command that corrects it."""

    part: str
    health: Health
    found: str
    mend: str | None = None
