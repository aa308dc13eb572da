"""A container registry, as far as who has not signed in sees of it."""

from __future__ import annotations

from tests.fakes.azureml.messages import Reply, Request, Service, answer, on


class Registry(Service):
    """Asks everyone to sign in, as the OCI distribution specification has it for `/v2/`."""

    @on("GET", "/v2/")
    def base(self, request: Request) -> Reply:
        errors = [{"code": "UNAUTHORIZED", "message": "authentication required", "detail": None}]
        realm = f'Bearer realm="https://{request.host}/oauth2/token",service="{request.host}"'
        return answer({"errors": errors}, 401, {"WWW-Authenticate": realm})
