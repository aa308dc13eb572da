"""The code that travels with a job of Azure ML: what, why, and how it gets there.

An upload is named by its content, so equal code goes up once. What a blob has no place for (modes,
links, empty folders) is written down in a file of its own, where there is any of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from jobs.azure_ml.rank_settings import SNAPSHOT_FILE, snapshot_file
from jobs.azure_ml.request import code_path
from jobs.code import Entry, travelling
from jobs.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.spec import JobSpec
from jobs.transfers.files import BLOCK_BYTES, Outgoing

if TYPE_CHECKING:
    from jobs.azure_ml.wire import Wire
    from jobs.transfers.container import StoreError

# What a node makes again of the code that it was given.
SHAPE_FILE = ".trainyard/shape.json"
# Of a container that was made for one upload.
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_OURS = ".trainyard"


class Shape(Struct, frozen=True, kw_only=True):
    """SHAPE_FILE: links and what they lead to, files that can be run, folders without a file."""

    links: dict[str, str]
    executable: tuple[str, ...]
    folders: tuple[str, ...]


class CodeFile(Struct, frozen=True, kw_only=True):
    """One file that travels; `reason` says why it does."""

    name: str
    bytes: int
    reason: str


class CodeListing(Struct, frozen=True, kw_only=True):
    """All that travels; `name` is what Azure ML calls it, the same for the same content.

    `left_out` are links that lead out of the code to folders, or nowhere.
    """

    name: str
    files: tuple[CodeFile, ...]
    left_out: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(each.bytes for each in self.files)


class Code(Struct, frozen=True, kw_only=True):
    """The code as it was read: the user's files, and what we put beside them."""

    listing: CodeListing
    files: tuple[Outgoing, ...]
    made: dict[str, bytes]


def read_code(spec: JobSpec, *, exclude: tuple[Path, ...] = ()) -> Code:
    """Read each file that travels, for its digest; raises LaunchError for one that cannot be read.

    `exclude` are folders that never travel.
    """
    found = _look(spec, exclude)
    made = {SNAPSHOT_FILE: snapshot_file()}
    if found.links or found.executable or found.folders:
        shape = Shape(
            links=found.links, executable=tuple(found.executable), folders=tuple(found.folders)
        )
        made[SHAPE_FILE] = msgspec.json.encode(shape, order="deterministic")
    reasons = {SNAPSHOT_FILE: "starts each rank", SHAPE_FILE: "modes, links and empty folders"}
    listed = [
        *(CodeFile(name=each.name, bytes=each.bytes, reason=why) for each, why in found.files),
        *(CodeFile(name=n, bytes=len(content), reason=reasons[n]) for n, content in made.items()),
    ]
    digests = found.digests | {n: hashlib.sha256(content).digest() for n, content in made.items()}
    return Code(
        listing=CodeListing(
            name=_name_of(digests), files=tuple(listed), left_out=tuple(found.left_out)
        ),
        files=tuple(each for each, _ in found.files),
        made=made,
    )


def send_code(code: Code, copy: Path, wire: Wire) -> None:
    """Make the upload known to Azure ML under its name; sends nothing where it is there already.

    `copy` is the folder with the run's copy of the code. Raises LaunchError where that is not what
    was read.
    """
    path = code_path(wire.workspace, code.listing.name)
    what = "sending the code"
    if wire.find(path, what=what) is not None:
        return
    given = wire.post(
        f"{path}/startPendingUpload", {"pendingUploadType": "TemporaryBlobReference"}, what=what
    )
    place = _place_of(given.body["blobReferenceForConsumption"], code.listing.name)
    _send_files(code, copy, place, wire)
    properties = {"codeUri": f"{place.container}/{place.folder}".rstrip("/"), "isAnonymous": True}
    wire.put(path, {"properties": properties}, what=what)


class _Place(NamedTuple):
    """Where Azure ML wants an upload: a container's address, what opens it, a folder in it."""

    container: str
    sas: str
    folder: str


def _place_of(given: dict[str, Any], name: str) -> _Place:
    container = str(given["blobUri"]).rstrip("/")
    credential: Any = given.get("credential")
    address = str(credential.get("sasUri") or "") if credential else ""
    # A container for this upload alone takes it at its top, as azure-ai-ml does.
    folder = "" if _GUID.search(container) else f"{name}/"
    return _Place(container=container, sas=urlsplit(address).query, folder=folder)


def _send_files(code: Code, copy: Path, place: _Place, wire: Wire) -> None:
    from jobs.transfers.authority import Identity, Sas
    from jobs.transfers.azure_store import AzureStore
    from jobs.transfers.container import Container

    # Without shared keys a workspace's store may give none: then it is ours to be let in.
    authority = Sas(place.sas) if place.sas else Identity(wire.tokens.credential)
    stack = wire.environment.stack
    host = urlsplit(place.container).netloc

    def explain(error: StoreError) -> EnvironmentFailure:
        return _explain(error, host, stack)

    container = Container(place.container, authority)
    store = AzureStore(container, place.container.rpartition("/")[2], explain)
    with tempfile.TemporaryDirectory(prefix="trainyard-code-") as temporary:
        ours = [_laid(Path(temporary), name, content) for name, content in code.made.items()]
        files = [
            *(msgspec.structs.replace(each, path=copy / each.name) for each in code.files),
            *ours,
        ]
        files = [msgspec.structs.replace(each, name=place.folder + each.name) for each in files]
        store.send(files, _ignore)


def _ignore(_files: int, _bytes: int, _found: int = 0, /) -> None:
    pass


def _laid(temporary: Path, name: str, content: bytes) -> Outgoing:
    path = temporary / name.replace("/", "_")
    path.write_bytes(content)
    md5 = hashlib.md5(content, usedforsecurity=False).digest()
    return Outgoing(name=name, path=path, bytes=len(content), md5=md5)


def _explain(error: StoreError, host: str, stack: str) -> EnvironmentFailure:
    if error.code == "AuthorizationFailure":
        message = f"the firewall of the workspace's store {host} does not let our address in"
        hint = "connect by VPN or peering, or have the address added to `allowed_ips` of the stack"
        return EnvironmentFailure(message, hint=hint)
    if error.status in (401, 403):
        message = f"the workspace's store {host} refuses the code: {error.text}"
        hint = "the role Storage Blob Data Contributor on that account, then the same again"
        return EnvironmentFailure(message, hint=hint)
    answer = f"answered {error.status}" if error.status else "cannot be reached"
    message = f"the workspace's store {host} {answer}: {error.text}"
    return EnvironmentFailure(message, hint=f"launch env check -s {stack}")


# --- What there is -----------------------------------------------------------------------------


class _Found:
    """What a look at the code has found."""

    def __init__(self) -> None:
        self.files: list[tuple[Outgoing, str]] = []
        self.digests: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.executable: list[str] = []
        self.folders: list[str] = []
        self.left_out: list[str] = []


def _look(spec: JobSpec, exclude: tuple[Path, ...]) -> _Found:
    found = _Found()
    if spec.code is None:
        return found
    source = Path(spec.code)
    if not source.is_dir():
        message = f"`code: {source}` is no folder"
        raise NotFound(message, hint="paths in a job file are relative to the file")
    entries = travelling(source, spec.code_only, {str(each.resolve()) for each in exclude})
    for entry in sorted(entries, key=lambda each: each.name):
        if entry.name.split("/", 1)[0] == _OURS:
            found.left_out.append(entry.name)
        else:
            _take(entry, source, spec, found)
    filled = {parent for name in (*found.digests, *found.links) for parent in _parents(name)}
    found.folders = [each for each in found.folders if each not in filled]
    return found


def _take(entry: Entry, source: Path, spec: JobSpec, found: _Found) -> None:
    path = source / entry.name
    if entry.kind == "folder":
        found.folders.append(entry.name.rstrip("/"))
    elif entry.kind == "left out":
        found.left_out.append(entry.name)
    elif entry.kind == "link":
        found.links[entry.name] = path.readlink().as_posix()
    else:
        is_link = path.is_symlink()
        file, digest, mode = _read(entry.name, path.resolve())
        why = "what a link leads to" if is_link else _reason(entry.name, spec)
        found.files.append((file, why))
        found.digests[entry.name] = digest
        if mode & 0o111:
            found.executable.append(entry.name)


def _read(name: str, path: Path) -> tuple[Outgoing, bytes, int]:
    """One file's size and digests, and its mode."""
    whole, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    blocks: list[bytes] = []
    size = 0
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode if os.name == "posix" else 0
            while block := file.read(BLOCK_BYTES):
                whole.update(block)
                md5.update(block)
                blocks.append(hashlib.md5(block, usedforsecurity=False).digest())
                size += len(block)
    except OSError as error:
        message = f"cannot read `{path}`, which belongs to the job's code: {error.strerror}"
        raise LaunchError(message, hint="name it in .launchignore") from error
    of_blocks = tuple(blocks) if size > BLOCK_BYTES else ()
    file_sent = Outgoing(name=name, path=path, bytes=size, md5=md5.digest(), block_md5s=of_blocks)
    return file_sent, whole.digest(), mode


def _reason(name: str, spec: JobSpec) -> str:
    words = spec.command
    if len(words) > 1 and name == words[1]:
        return "the script"
    if len(words) > 2 and words[1] == "-m" and name == words[2].replace(".", "/") + ".py":
        return "the module"
    part = next((each for each in spec.code_only if name.startswith(f"{each.rstrip('/')}/")), None)
    return f"in `{part}`, which the module is of" if part else "in `code`"


def _parents(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _name_of(digests: dict[str, bytes]) -> str:
    lines = [f"{digests[name].hex()} {name}\n" for name in sorted(digests)]
    return f"trainyard-{hashlib.sha256(''.join(lines).encode()).hexdigest()[:40]}"
