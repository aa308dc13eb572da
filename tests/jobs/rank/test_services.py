"""Whom a node's identity is shown to: Azure's own hosts, whatever the file of an environment says."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.rank.identity import NodeFailure
from jobs.rank.services import Container, fetch_secrets


class Counted:
    """An identity that counts who asks for a token."""

    def __init__(self) -> None:
        self.num_asked = 0

    def token(self, _resource: str) -> str:
        self.num_asked += 1
        return "token"

    def forget(self, _resource: str) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    "store",
    [
        "https://evil.example",
        "http://store.blob.core.windows.net",
        "https://store.blob.core.windows.net@evil.example",
        "https://store.blob.core.windows.net:444",
        "https://blob.core.windows.net.evil.example",
        "https://evilblob.core.windows.net",
        "https://vault.vault.azure.net",
    ],
)
def test_no_other_host_than_a_store_is_shown_a_token_of_the_store(store: str) -> None:
    identity: Any = Counted()
    with pytest.raises(NodeFailure, match="the cluster's identity is not sent to `http") as refused:
        Container(store, "runs", identity).get("x")
    assert refused.value.hint.endswith("https://NAME.blob.core.windows.net")
    assert identity.num_asked == 0


def test_no_other_host_than_a_vault_is_shown_a_token_of_the_vault() -> None:
    identity: Any = Counted()
    for vault in ("https://store.blob.core.windows.net", "https://vault.azure.net.evil.example"):
        with pytest.raises(NodeFailure, match="is not sent to") as refused:
            fetch_secrets(vault, {"KEY": "key"}, identity)
        assert refused.value.hint.endswith("https://NAME.vault.azure.net")
    assert identity.num_asked == 0
