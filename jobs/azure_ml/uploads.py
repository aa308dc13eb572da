"""Brings files to where a workspace keeps uploads, and makes them known under a name."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from jobs import console
from jobs.azure_ml.refusals import CloudRefusal
from jobs.azure_ml.request import code_path
from jobs.console import count_text, size_text
from jobs.errors import EnvironmentFailure
from jobs.store_refusals import explain_store
from jobs.transfers.files import Outgoing, outgoing

if TYPE_CHECKING:
    from jobs.azure_ml.wire import Wire
    from jobs.transfers.container import StoreError

# Of a container that was made for one upload.
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


class _Place(NamedTuple):
    """Where Azure ML wants an upload: a container's address, what opens it, a folder in it."""

    container: str
    sas: str
    folder: str

    @property
    def uri(self) -> str:
        return f"{self.container}/{self.folder}".rstrip("/")


def upload(
    wire: Wire, name: str, files: Sequence[Outgoing], made: Mapping[str, bytes], *, what: str
) -> str:
    """Send `files`, and `made` (contents by name); gives their folder's address.

    Sends nothing where `name` is known already. Raises LaunchError for a file that changed since
    its digests were taken.
    """
    path = code_path(wire.workspace, name)
    known = wire.find(path, what=what)
    if known is not None:
        return str(known["properties"]["codeUri"])
    asked = {"pendingUploadType": "TemporaryBlobReference"}
    given = wire.post(f"{path}/startPendingUpload", asked, what=what)
    place = _place_of(given.body["blobReferenceForConsumption"], name)
    _send(wire, place, files, made, what=what)
    try:
        wire.put(path, {"properties": {"codeUri": place.uri, "isAnonymous": True}}, what=what)
    except CloudRefusal as refusal:
        # Somebody may have made the same known meanwhile: a version keeps its address.
        known = wire.find(path, what=what) if refusal.status in (400, 409) else None
        if known is None:
            raise
        return str(known["properties"]["codeUri"])
    return place.uri


def _place_of(given: dict[str, Any], name: str) -> _Place:
    container = str(given["blobUri"]).rstrip("/")
    credential: Any = given.get("credential")
    address = str(credential.get("sasUri") or "") if credential else ""
    # A container for this upload alone takes it at its top, as azure-ai-ml does.
    folder = "" if _GUID.search(container) else f"{name}/"
    return _Place(container=container, sas=urlsplit(address).query, folder=folder)


def _send(
    wire: Wire, place: _Place, files: Sequence[Outgoing], made: Mapping[str, bytes], *, what: str
) -> None:
    from jobs.transfers.authority import Identity, Sas
    from jobs.transfers.azure_store import AzureStore
    from jobs.transfers.container import Container

    # Without shared keys a workspace's store may give none: then it is ours to be let in.
    authority = Sas(place.sas) if place.sas else Identity(wire.tokens)
    address, _, name = place.container.rpartition("/")

    def explain(error: StoreError) -> EnvironmentFailure:
        role = "the role Storage Blob Data Contributor on that account, then the same again"
        check = f"launch env check -s {wire.environment.stack}"
        return explain_store(error, f"{address}, where uploads go,", role=role, check=check)

    store = AzureStore(Container(place.container, authority), name, explain)
    with tempfile.TemporaryDirectory(prefix="trainyard-upload-") as temporary:
        sent = [*files]
        for number, (name, content) in enumerate(made.items()):
            path = Path(temporary, str(number))
            path.write_bytes(content)
            sent.append(outgoing(name, path)[0])
        size = size_text(sum(each.bytes for each in sent))
        console.say(f"{what}: {count_text(len(sent), 'file')}, {size}")
        store.send(
            [msgspec.structs.replace(each, name=place.folder + each.name) for each in sent],
            _ignore,
        )


def _ignore(_files: int, _bytes: int, _found: int = 0, /) -> None:
    pass
