"""Explain an error of a blob store and give its remedy (pure)."""

from __future__ import annotations

from jobs.contracts.errors import EnvironmentFailure, Unreached

FIREWALL_HINT = "connect by VPN or peering, or add the address to `allowed_ips` of the stack"


class StoreError(Exception):
    """The store answered with an error, or (`status` None) not at all."""

    def __init__(self, status: int | None, code: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text


def behind_firewall(place: str) -> str:
    """Explain a refusal by the account's firewall."""
    return f"the firewall of {place} blocks this machine's address"


def explain_store(
    error: StoreError, where: str, *, role: str, check: str, is_local: bool = False
) -> EnvironmentFailure:
    """Explain an answer of the store at `where`; `role` mends a refusal, `check` looks into the rest."""
    if error.code == "AuthorizationFailure" and not is_local:
        # A local store has no firewall, and says the same of a bad signature.
        return EnvironmentFailure(behind_firewall(where), hint=FIREWALL_HINT)
    if error.status in (401, 403):
        return EnvironmentFailure(f"the store {where} refuses access: {error.text}", hint=role)
    if error.status is None:
        return Unreached(f"the store {where} cannot be reached: {error.text}", hint=check)
    is_passing = error.status in (408, 429) or error.status >= 500
    kind = Unreached if is_passing else EnvironmentFailure
    return kind(f"the store {where} answered {error.status}: {error.text}", hint=check)
