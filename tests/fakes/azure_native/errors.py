"""What the service answers instead of a result."""

from __future__ import annotations

RETRIED = {408, 429, 500, 502, 503, 504}


class Refused(Exception):
    """An answer of ARM's that is an error."""

    def __init__(
        self, status: int, code: str, message: str, *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f'Status={status} Code="{code}" Message="{message}"')
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s


class Failed(Refused):
    """A request that was accepted and failed afterwards: the resource is there all the same."""


class Cancelled(Exception):
    """The engine has asked the provider to stop."""


class AlreadyThere(Exception):
    """The provider's own look before a create found the resource."""

    def __init__(self, resource_id: str) -> None:
        super().__init__(f"cannot create already existing resource '{resource_id}'")
