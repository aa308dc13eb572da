"""What an error of a blob store means, and what mends it."""

from __future__ import annotations

import pytest

from jobs.blobs.refusals import FIREWALL_HINT, StoreError, explain_store
from jobs.contracts.errors import Unreached

WHERE = "https://a.blob.core.windows.net"


@pytest.mark.parametrize(
    ("status", "is_passing"),
    [(None, True), (408, True), (429, True), (500, True), (503, True), (400, False), (409, False)],
)
def test_what_another_try_may_better_is_not_final(status: int | None, is_passing: bool) -> None:
    error = explain_store(StoreError(status, "", "said"), WHERE, role="a role", check="look")
    assert (isinstance(error, Unreached), error.hint) == (is_passing, "look")


def test_a_firewall_is_only_before_a_store_on_azure() -> None:
    refused = StoreError(403, "AuthorizationFailure", "said")
    hints = [
        explain_store(refused, WHERE, role="a role", check="look", is_local=is_local).hint
        for is_local in (False, True)
    ]
    assert hints == [FIREWALL_HINT, "a role"]
