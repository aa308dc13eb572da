"""Turns mounted shares, containers and servers of a Batch AI job into inputs, outputs and the code's folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from jobs.launching.imports.batchai_variables import REFERENCE, ROOT, Mount
from jobs.launching.imports.draft import Draft, DraftInput, Project, unique, variable_name
from jobs.launching.imports.leaves import Place
from jobs.launching.imports.secrecy import Vault

_PATH = re.compile(r"[A-Za-z0-9_@+][A-Za-z0-9._@+-]*(?:/[A-Za-z0-9_@+][A-Za-z0-9._@+-]*)*\Z")
_URL = re.compile(r"(?P<start>https?://)?(?:[^/@\s]*@)?(?P<rest>[A-Za-z0-9._<>/-]+)")
_FILE = re.compile(r"\.[A-Za-z0-9]{1,6}\Z")
IDENTITY = (
    "a key is never copied: nodes read the store by their cluster's identity; if a program needs "
    "the key itself: az keyvault secret set --vault-name VAULT --name storage-key --value KEY, and "
    "`secrets: {STORAGE_KEY: storage-key}`"
)


@dataclass(frozen=True, kw_only=True)
class Script:
    """The script of a job as it stands in the code's folder, and the mounted folder that the code stands for."""

    root: str
    base: str
    code: str
    file: Path


def read_mounts(volumes: Place | None, root: str, vault: Vault) -> list[Mount]:
    """Read `mountVolumes`; says of each leaf what becomes of it."""
    if volumes is None:
        return []
    found: list[Mount | None] = [
        *(_azure_files(each, root, vault) for each in volumes.list("azureFileShares")),
        *(_blobs(each, root, vault) for each in volumes.list("azureBlobFileSystems")),
        *(_file_server(each, root, vault) for each in volumes.list("fileServers")),
        *(_own_command(each, root, vault) for each in volumes.list("unmanagedFileSystems")),
    ]
    return [each for each in found if each]


def _azure_files(place: Place, root: str, vault: Vault) -> Mount | None:
    url = place.take_text("azureFileUrl")
    source = f"the share {_shown(url[0], vault)}" if url else "a file share"
    for name in ("fileMode", "directoryMode"):
        mode = place.take_text(name)
        if mode and mode[0] in ("0777", "777"):
            mode[1].converted("everybody in the run may read and write")
        elif mode:
            mode[1].refused(
                "files of inputs and outputs are the run's own: there is no mode to set"
            )
    return _mount(place, root, source, vault, ("azureFileUrl", "accountName"))


def _blobs(place: Place, root: str, vault: Vault) -> Mount | None:
    account, container = place.take_text("accountName"), place.take_text("containerName")
    parts = [_shown(each[0], vault) for each in (account, container) if each]
    source = f"the blob container {'/'.join(parts)}" if parts else "a blob container"
    return _mount(place, root, source, vault, ("accountName", "containerName"))


def _file_server(place: Place, root: str, vault: Vault) -> Mount | None:
    server = place.section("fileServer")
    told = server.take_text("id") if server else None
    folder = place.take_text("sourceDirectory")
    name = _shown(told[0].rpartition("/")[2], vault) if told else "?"
    source = f"the file server {name}" + (
        f", its folder {_shown(folder[0], vault)}" if folder else ""
    )
    return _mount(place, root, source, vault, ("fileServer", "sourceDirectory"))


def _own_command(place: Place, root: str, vault: Vault) -> Mount | None:
    command = place.take_text("mountCommand")
    mount = _mount(place, root, "a file system with a mount command of its own", vault, ())
    if command:
        where = f"into {mount.path}" if mount else "into a folder"
        command[1].refused(
            f"no node runs a mount command: copy what it mounted {where}, as README.md says"
        )
    return mount


def _mount(
    place: Place, root: str, source: str, vault: Vault, facts: Sequence[str]
) -> Mount | None:
    path = place.take_text("relativeMountPath")
    options = place.take_text("mountOptions")
    if options:
        options[1].refused(
            "an input has no mount options: `mode: mount` or `download` is its choice"
        )
    credentials = place.section("credentials", "credentialsInfo")
    for leaf in credentials.leaves() if credentials else ():
        leaf.refused(IDENTITY)
    relative = path[0].strip("/").removeprefix("./") if path else ""
    if path is None or not _PATH.match(relative) or vault.holds(relative):
        reason = "the mount has no path that a shell can be given: set `relativeMountPath`"
        for name in ("relativeMountPath", *facts):
            if found := place.get(name):
                found.refused(reason)
        return None
    path[1].kept(root)
    for name in facts:
        if found := place.get(name):
            found.converted(f"README.md: {source}")
    return Mount(root=root, path=relative, source=source)


def _shown(text: str, vault: Vault) -> str:
    """Show of an address what no secret can be in: not its query, not its login."""
    found = _URL.match(text)
    shown = f"{found['start'] or ''}{found['rest']}"[:120] if found else "?"
    return "?" if vault.holds(shown) else shown


def refer(mounts: list[Mount], text: str, *, reads: bool, writes: bool) -> None:
    """Note that a text names paths below the mounts; mounts that nobody declared are added."""
    for found in REFERENCE.finditer(text):
        root, path = found[1] or found[2], found["path"].strip("/")
        if not path or ".." in path.split("/"):
            continue
        mount = _holder(mounts, root, path)
        if mount is None:
            top = path.partition("/")[0]
            if not _PATH.match(top):
                continue
            place = "cluster" if root == ROOT else "job"
            mount = Mount(root=root, path=top, source=f"the mount {top} of the {place}")
            mounts.append(mount)
        below = path[len(mount.path) :].strip("/")
        if mount.is_code(below):
            continue
        mount.reads, mount.writes = mount.reads or reads, mount.writes or writes
        aim = below.rpartition("/")[0] if _FILE.search(below) else below
        if writes and reads and aim and _PATH.match(aim) and aim not in mount.aims:
            mount.aims.append(aim)


def _holder(mounts: Sequence[Mount], root: str, path: str) -> Mount | None:
    fitting = [
        each
        for each in mounts
        if each.root == root and (path == each.path or path.startswith(f"{each.path}/"))
    ]
    return max(fitting, key=lambda each: len(each.path), default=None)


def mounted_path(text: str, inputs: dict[str, str]) -> tuple[str, str] | None:
    """Give root and path of a text that names a mounted file, by an input directory's variable or directly."""
    for name, path in inputs.items():
        for spelled in (f"${{{name}}}", f"${name}"):
            rest = text.removeprefix(spelled)
            if rest != text and not re.match(r"[A-Za-z0-9_]", rest):
                text = f"{path.rstrip('/')}/{rest.lstrip('/')}"
    found = REFERENCE.match(text)
    if found is None or found.end() != len(text):
        return None
    path = found["path"].strip("/")
    return (found[1] or found[2], path) if path and ".." not in path.split("/") else None


def find_script(root: str, path: str, code: Path) -> Script | None:
    """Find a mounted script in the code's folder by the longest end of its path that is there."""
    parts = PurePosixPath(path).parts
    for start in range(len(parts)):
        inside = PurePosixPath(*parts[start:])
        if (code / inside).is_file():
            file = code / inside
            if start:
                return Script(root=root, base="/".join(parts[:start]), code=".", file=file)
            top = parts[0]
            return Script(root=root, base=top, code=top, file=file) if len(parts) > 1 else None
    return None


def link_code(mounts: list[Mount], script: Script, code: Path) -> None:
    """Have the code's folder stand in the mount in which the script lay."""
    mount = _holder(mounts, script.root, script.base)
    if mount is None:
        top = script.base.partition("/")[0]
        mount = Mount(root=script.root, path=top, source=f"the mount {top}")
        mounts.append(mount)
    mount.code = code
    mount.links[script.base[len(mount.path) :].strip("/")] = script.code


def give_folders(mounts: Sequence[Mount], draft: Draft, project: Project) -> None:
    """Give each mount its input and output, as far as the job reads and writes it."""
    for mount in mounts:
        is_named = mount.reads or mount.writes or mount.links
        name = variable_name(mount.path) or "mount"
        if mount.reads or not is_named:
            mount.input = unique(name, draft.inputs).replace("-", "_")
            folder = project.folder_for(name, mount.source)
            draft.inputs[mount.input] = DraftInput(source=mount.source, folder=folder)
        if mount.writes or not is_named:
            mount.output = unique(name, draft.outputs).replace("-", "_")
            draft.outputs.append(mount.output)
