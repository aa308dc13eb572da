"""Uploads code and build contexts to a workspace, names image versions, and caches what is there."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from jobs.blobs.files import Outgoing, outgoing
from jobs.blobs.refusals import StoreError, explain_store
from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import JobSpec
from jobs.engines.azure_ml.image_versions import (
    ImageVersion,
    image_name,
    is_reference,
    plain_dockerfile,
    recipe_of,
)
from jobs.engines.azure_ml.names import code_path
from jobs.engines.azure_ml.refusals import CloudRefusal
from jobs.engines.azure_ml.states import mapping, text_in
from jobs.host import console
from jobs.host.console import count_text, size_text
from jobs.host.private import make_folder

if TYPE_CHECKING:
    from jobs.blobs.azure_store import AzureStore
    from jobs.engines.azure_ml.client import ArmClient

# Of a container that was made for one upload.
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


class NotCompared(EnvironmentFailure):
    """An upload exists already, and its content cannot be read."""


class UploadCache:
    """Names of code uploads and of image versions that a workspace has, as empty files.

    The folder may be deleted at any time. Versions never change, but somebody may delete one: where
    Azure ML refuses a job, what is cached is looked at again.
    """

    def __init__(self, workspace: Path) -> None:
        self._folder = workspace / "known"

    def has(self, name: str) -> bool:
        """Tell whether the workspace had it when it was last asked."""
        return (self._folder / name).exists()

    def add(self, name: str) -> None:
        """Remember that the workspace has it."""
        # A disk that is full costs a request next time.
        with suppress(OSError):
            make_folder(self._folder)
            (self._folder / name).touch()

    def forget(self, name: str) -> None:
        """Remember no longer that the workspace has it."""
        (self._folder / name).unlink(missing_ok=True)


class _Place(NamedTuple):
    """Address of a container, what opens it, and a folder in it."""

    container: str
    sas: str
    folder: str

    @property
    def uri(self) -> str:
        return f"{self.container}/{self.folder}".rstrip("/")


def upload(
    client: ArmClient, name: str, files: Sequence[Outgoing], made: Mapping[str, bytes], *, what: str
) -> str:
    """Send `files`, and `made` (contents by name); gives their folder's address.

    Sends nothing where `name` is known already: what lies there is compared instead. Raises
    LaunchError for a file that changed since its digests were taken, EnvironmentFailure where other
    content lies there, NotCompared where nobody lets us look.
    """
    path = code_path(client.workspace, name)
    known = client.find(path, what=what)
    if known is not None:
        return _known_uri(client, name, known, files, made)
    asked = {"pendingUploadType": "TemporaryBlobReference"}
    given = client.post(f"{path}/startPendingUpload", asked, what=what)
    place = _place_of(given.body["blobReferenceForConsumption"], name)
    _send(client, place, files, made, what=what)
    try:
        client.put(path, {"properties": {"codeUri": place.uri, "isAnonymous": True}}, what=what)
    except CloudRefusal as refusal:
        # Somebody may have made the same known meanwhile: a version keeps its address.
        known = client.find(path, what=what) if refusal.status in (400, 409) else None
        if known is None:
            raise
        return _known_uri(client, name, known, files, made)
    return place.uri


def send_version(version: ImageVersion, spec: JobSpec, client: ArmClient) -> None:
    """Make the version known to the workspace, with what it is built from where it is.

    Raises EnvironmentFailure where another image has that name there.
    """
    what = "naming the image"
    path = version.path(client.workspace)
    properties: dict[str, Any] = version.body["properties"]
    if is_reference(spec.image):
        answer = client.put(path, version.body, what=what).body
        image = text_in(mapping(answer.get("properties")), "image")
        if image not in ("", properties["image"]):
            raise _not_ours(version)
        return
    # Also where there is such a version: what it is built from is compared.
    build = {**properties["build"], "contextUri": _send_context(spec, client)}
    found = client.find(path, what=what)
    if found is None:
        client.put(path, {"properties": {**properties, "build": build}}, what=what)
    elif not _is_built_so(mapping(found.get("properties")), build):
        raise _not_ours(version)


def _known_uri(
    client: ArmClient, name: str, known: Any, files: Sequence[Outgoing], made: Mapping[str, bytes]
) -> str:
    """Give the address of an upload that somebody made, once its files were compared with ours."""
    uri = str(known["properties"]["codeUri"])
    wanted = {each.name: (each.bytes, each.md5) for each in files}
    for each, content in made.items():
        digest = hashlib.md5(content, usedforsecurity=False).digest()
        wanted[each] = (len(content), digest)
    try:
        # One more tells that there are others, however many.
        found = dict(islice(_listed(client, uri), len(wanted) + 1))
    except EnvironmentFailure as error:
        message = f"`{name}`, which somebody sent before, was not compared: {error.message}"
        raise NotCompared(message, hint=error.hint) from error
    odd = sorted(each for each in {*wanted, *found} if wanted.get(each) != found.get(each))
    if odd:
        shown = f"`{odd[0]}`" + (f" and {count_text(len(odd) - 1, 'other')}" if odd[1:] else "")
        message = f"the content of `{name}` in the workspace differs from the local files: {shown}"
        hint = "somebody may have changed it: tell the owner of the stack; after any local change it is sent"
        raise EnvironmentFailure(message, hint=f"{hint} under another name")
    return uri


def _listed(client: ArmClient, uri: str) -> Iterator[tuple[str, tuple[int, bytes | None]]]:
    """Yield each file of an upload, with its size and MD5."""
    parts = urlsplit(uri)
    container, _, folder = parts.path.strip("/").partition("/")
    prefix = f"{unquote(folder)}/" if folder else ""
    url = f"{parts.scheme}://{parts.netloc}/{container}"
    store = _open(client, _Place(container=url, sas="", folder=""))
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
    client: ArmClient,
    place: _Place,
    files: Sequence[Outgoing],
    made: Mapping[str, bytes],
    *,
    what: str,
) -> None:
    store = _open(client, place)
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


def _open(client: ArmClient, place: _Place) -> AzureStore:
    from jobs.blobs.authority import Identity, Sas
    from jobs.blobs.azure_store import AzureStore
    from jobs.blobs.container import Container

    # Without shared keys a workspace's store may give none: then it is ours to be let in.
    authority = Sas(place.sas) if place.sas else Identity(client.tokens)
    address = place.container.rpartition("/")[0]

    def explain(error: StoreError) -> EnvironmentFailure:
        role = (
            "get the role Storage Blob Data Contributor on that account, then type the same again"
        )
        check = f"launch env check -s {client.environment.stack}"
        return explain_store(error, f"{address}, where uploads go,", role=role, check=check)

    return AzureStore(Container(place.container, authority), explain)


def _ignore(_files: int, _bytes: int, _found: int = 0, /) -> None:
    pass


def _is_built_so(properties: Mapping[str, Any], build: Mapping[str, str]) -> bool:
    """Tell whether a version that is there is built from that context.

    An address in a form of Azure ML's own, which cannot be compared, passes.
    """
    told = mapping(properties.get("build"))
    uri = text_in(told, "contextUri").partition("?")[0].rstrip("/")
    is_same = uri == build["contextUri"] or (bool(uri) and not uri.startswith("https://"))
    file = text_in(told, "dockerfilePath").removeprefix("./")
    return is_same and file == build["dockerfilePath"] and not properties.get("image")


def _not_ours(version: ImageVersion) -> EnvironmentFailure:
    message = (
        f"the workspace has another image as `{version.name}:{version.version}` than this job's"
    )
    hint = "it was made by hand: tell the owner of the stack, or use another image"
    return EnvironmentFailure(message, hint=hint)


def _send_context(spec: JobSpec, client: ArmClient) -> str:
    recipe = recipe_of(spec, client.environment)
    files = [
        outgoing(place, path)[0]
        for place, path in recipe.files.items()
        if place != recipe.dockerfile
    ]
    made = {recipe.dockerfile: plain_dockerfile(recipe.text, recipe.arguments).encode()}
    name = f"{image_name(recipe.image)}-{recipe.tag}"
    return upload(client, name, files, made, what=f"sending images/{recipe.image}")
