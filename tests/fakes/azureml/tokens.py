"""Entra ID and the identity of a node: who gets a token, and whether a token still opens anything."""

from __future__ import annotations

import base64
import json
import secrets
import time
from urllib.parse import parse_qs

from tests.fakes.azureml.messages import Refusal, Reply, Request, Service, answer, on

LOGIN = "login.microsoftonline.com"
MANAGEMENT = {"https://management.azure.com", "https://management.core.windows.net"}
STORAGE = "https://storage.azure.com"
VAULT = "https://vault.azure.net"


class Tokens(Service):
    """Serves the login host for one tenant with one application, and a node's identity service.

    `lifetime_s` is that of the tokens given from now on; `expire()` ends all given so far.
    """

    def __init__(self, *, tenant_id: str, client_id: str, cluster_client_id: str) -> None:
        super().__init__()
        self.tenant_id, self.client_id = tenant_id, client_id
        self.cluster_client_id = cluster_client_id
        self.client_secret = secrets.token_urlsafe(16)
        self.node_secret = secrets.token_urlsafe(16)
        self.forget()

    def forget(self) -> None:
        """Begin anew: no token was given, and those to come live for an hour."""
        self.lifetime_s = 3600.0
        self._expired_before_s = 0.0
        # token -> audience, client, given at, good until
        self._given: dict[str, tuple[str, str, float, float]] = {}

    def expire(self) -> None:
        self._expired_before_s = time.time()

    def give(self, audience: str, *, client_id: str = "") -> str:
        """A token as Azurite and PyJWT read one; the signature is well-formed and worth nothing."""
        now = time.time()
        payload = {
            "aud": audience,
            "iss": f"https://sts.windows.net/{self.tenant_id}/",
            "tid": self.tenant_id,
            "appid": client_id or self.client_id,
            "oid": client_id or self.client_id,
            "iat": int(now),
            "nbf": int(now) - 60,
            "exp": int(now + max(60.0, self.lifetime_s)),
            "jti": secrets.token_hex(8),
        }
        parts = ({"alg": "RS256", "typ": "JWT"}, payload)
        token = ".".join(
            [*(_base64(json.dumps(part).encode()) for part in parts), _base64(b"none")]
        )
        self._given[token] = (audience, str(payload["appid"]), now, now + self.lifetime_s)
        return token

    def check(self, request: Request, audiences: set[str]) -> str:
        """Refuse a request without a good token; the client that it was given to."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        audience, client_id, given_s, until_s = self._given.get(token, ("", "", 0.0, 0.0))
        if scheme != "Bearer" or not token:
            raise _unauthorized(
                "AuthenticationFailed", "Authentication failed. The header is missing."
            )
        if audience not in audiences:
            raise _unauthorized(
                "InvalidAuthenticationTokenAudience",
                f"The access token has been obtained for wrong audience or resource '{audience}'.",
            )
        if time.time() > until_s or given_s < self._expired_before_s:
            raise _unauthorized("ExpiredAuthenticationToken", "The access token has expired.")
        return client_id

    @on("GET", "/{tenant}/discovery/instance")
    def discover_instance(self, request: Request, tenant: str) -> Reply:
        names = [LOGIN, "login.windows.net", "login.microsoft.com", "sts.windows.net"]
        return answer(
            {
                "tenant_discovery_endpoint": self._authority(
                    "v2.0/.well-known/openid-configuration"
                ),
                "api-version": "1.1",
                "metadata": [
                    {"preferred_network": LOGIN, "preferred_cache": names[1], "aliases": names}
                ],
            }
        )

    @on("GET", "/{tenant}/v2.0/.well-known/openid-configuration")
    @on("GET", "/{tenant}/.well-known/openid-configuration")
    def openid(self, request: Request, tenant: str) -> Reply:
        return answer(
            {
                "token_endpoint": self._authority("oauth2/v2.0/token"),
                "authorization_endpoint": self._authority("oauth2/v2.0/authorize"),
                "device_authorization_endpoint": self._authority("oauth2/v2.0/devicecode"),
                "issuer": self._authority("v2.0"),
                "tenant_region_scope": "EU",
            }
        )

    @on("POST", "/{tenant}/oauth2/v2.0/token")
    @on("POST", "/{tenant}/oauth2/token")
    def token(self, request: Request, tenant: str) -> Reply:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        given = form.get("client_id"), form.get("client_secret")
        if tenant.lower() != self.tenant_id or given != (self.client_id, self.client_secret):
            return answer(
                {
                    "error": "invalid_client",
                    "error_description": "AADSTS7000215: Invalid client secret.",
                },
                401,
            )
        resource = form.get("resource") or form.get("scope", "").split()[0]
        return answer(self._token_of(resource, self.client_id))

    def sender(self, request: Request) -> Reply:
        """Answer for the sender of a job with `UserIdentity`: what OBO_ENDPOINT names."""
        token = self._token_of(request.query["resource"], self.client_id)
        until_s = str(int(time.time() + self.lifetime_s))
        return answer({**token, "expires_on": until_s, "resource": request.query["resource"]})

    def identity(self, request: Request) -> Reply:
        """The identity service of a node: what MSI_ENDPOINT names, with MSI_SECRET."""
        if request.headers.get("secret") != self.node_secret:
            return answer({"statusCode": 401, "message": "MSI secret is wrong"}, 401)
        client_id = request.query.get("clientid") or request.query.get("client_id")
        if client_id != self.cluster_client_id:
            return answer({"statusCode": 400, "message": "Identity not found"}, 400)
        token = self._token_of(request.query["resource"], self.cluster_client_id)
        until_s = str(int(time.time() + self.lifetime_s))
        return answer({**token, "expires_on": until_s, "resource": request.query["resource"]})

    def _token_of(self, resource: str, client_id: str) -> dict[str, object]:
        audience = resource.removesuffix("/.default").rstrip("/")
        lasts_s = int(self.lifetime_s)
        return {
            "token_type": "Bearer",
            "expires_in": lasts_s,
            "ext_expires_in": lasts_s,
            "expires_on": str(int(time.time()) + lasts_s),
            "access_token": self.give(audience, client_id=client_id),
        }

    def _authority(self, path: str) -> str:
        return f"https://{LOGIN}/{self.tenant_id}/{path}"


def _unauthorized(code: str, message: str) -> Refusal:
    challenge = (
        f'Bearer authorization_uri="https://{LOGIN}/common", error="invalid_token", '
        f'error_description="{message}"'
    )
    return Refusal(401, code, message, {"WWW-Authenticate": challenge})


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
