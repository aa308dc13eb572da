"""A key vault's secrets, for those who have the token of an identity."""

from __future__ import annotations

from collections.abc import Collection

from tests.fakes.azureml.messages import Refusal, Reply, Request, Service, answer, on
from tests.fakes.azureml.tokens import VAULT, Tokens
from tests.fakes.deviations import Deviation


class Vault(Service):
    """`secrets` maps names to values; `readers` are the clients that may read, None for all."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens
        self.deviations: Collection[Deviation] = ()
        self.forget()

    def forget(self) -> None:
        """Begin anew: no secrets, and whoever has a token may read."""
        self.secrets: dict[str, str] = {}
        self.readers: set[str] | None = None

    @on("GET", "/secrets/{name}")
    @on("GET", "/secrets/{name}/")
    @on("GET", "/secrets/{name}/{version}")
    def secret(self, request: Request, name: str, version: str = "") -> Reply:
        client = self._tokens.check(request, {VAULT})
        is_refused = Deviation.SECRETS_REFUSED in self.deviations
        if is_refused or (self.readers is not None and client not in self.readers):
            message = f"Caller is not authorized to perform action on resource. Caller: {client}"
            raise Refusal(403, "Forbidden", message)
        if name not in self.secrets:
            message = f"A secret with (name/id) {name} was not found in this key vault."
            raise Refusal(404, "SecretNotFound", message)
        identity = f"https://{request.host}/secrets/{name}/1"
        return answer(
            {"id": identity, "value": self.secrets[name], "attributes": {"enabled": True}}
        )
