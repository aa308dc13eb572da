"""Brings files to where a workspace keeps uploads, and makes them known under a name."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from jobs.blobs.files import Outgoing, outgoing
from jobs.blobs.refusals import StoreError, explain_store
from jobs.contracts.errors import EnvironmentFailure
from jobs.engines.azure_ml.refusals import CloudRefusal
from jobs.engines.azure_ml.request import code_path
from jobs.host import console
from jobs.host.console import count_text, size_text

if TYPE_CHECKING:
    from jobs.blobs.azure_store import AzureStore
    from jobs.engines.azure_ml.client import Wire

# Of a container that was made for one upload.
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


class NotCompared(EnvironmentFailure):
    """An upload is there already, and what lies there cannot be looked at."""


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

    Sends nothing where `name` is known already: what lies there is compared instead. Raises
    LaunchError for a file that changed since its digests were taken, EnvironmentFailure where other
    content lies there, NotCompared where nobody lets us look.
    """
    path = code_path(wire.workspace, name)
    known = wire.find(path, what=what)
    if known is not None:
        return _known_uri(wire, name, known, files, made)
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
        return _known_uri(wire, name, known, files, made)
    return place.uri


def _known_uri(
    wire: Wire, name: str, known: Any, files: Sequence[Outgoing], made: Mapping[str, bytes]
) -> str:
    """Give the address of an upload that somebody made, once its files were compared with ours."""
    uri = str(known["properties"]["codeUri"])
    wanted = {each.name: (each.bytes, each.md5) for each in files}
    for each, content in made.items():
        digest = hashlib.md5(content, usedforsecurity=False).digest()
        wanted[each] = (len(content), digest)
    try:
        # One more tells that there are others, however many.
        found = dict(islice(_listed(wire, uri), len(wanted) + 1))
    except EnvironmentFailure as error:
        message = f"`{name}`, which somebody sent before, was not compared: {error.message}"
        raise NotCompared(message, hint=error.hint) from error
    odd = sorted(each for each in {*wanted, *found} if wanted.get(each) != found.get(each))
    if odd:
        shown = f"`{odd[0]}`" + (f" and {count_text(len(odd) - 1, 'other')}" if odd[1:] else "")
        message = f"the workspace has other content under `{name}` than lies here: {shown}"
        hint = "somebody may have changed it: tell whoever owns the stack; any change here is sent"
        raise EnvironmentFailure(message, hint=f"{hint} under another name")
    return uri


def _listed(wire: Wire, uri: str) -> Iterator[tuple[str, tuple[int, bytes | None]]]:
    """Yield each file of an upload, with its size and MD5."""
    parts = urlsplit(uri)
    container, _, folder = parts.path.strip("/").partition("/")
    prefix = f"{unquote(folder)}/" if folder else ""
    url = f"{parts.scheme}://{parts.netloc}/{container}"
    store = _open(wire, _Place(container=url, sas="", folder=""))
    for blob in store.list(prefix):
        yield blob.name.removeprefix(prefix), (blob.bytes, blob.md5)


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
    store = _open(wire, place)
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


def _open(wire: Wire, place: _Place) -> AzureStore:
    from jobs.blobs.authority import Identity, Sas
    from jobs.blobs.azure_store import AzureStore
    from jobs.blobs.container import Container

    # Without shared keys a workspace's store may give none: then it is ours to be let in.
    authority = Sas(place.sas) if place.sas else Identity(wire.tokens)
    address = place.container.rpartition("/")[0]

    def explain(error: StoreError) -> EnvironmentFailure:
        role = "the role Storage Blob Data Contributor on that account, then the same again"
        check = f"launch env check -s {wire.environment.stack}"
        return explain_store(error, f"{address}, where uploads go,", role=role, check=check)

    return AzureStore(Container(place.container, authority), explain)


def _ignore(_files: int, _bytes: int, _found: int = 0, /) -> None:
    pass
