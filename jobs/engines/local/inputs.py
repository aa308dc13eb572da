"""Gives a run its inputs: a folder that holds a dataset, or one through which it is streamed.

docs/inputs.md says what each mode does. Runs in a process of its own, which may be killed at any
moment: what it has done is found by the next one.
"""

from __future__ import annotations

import base64
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from jobs.blobs.store import BlobStore, Incoming, open_data_store
from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import DatasetVersion, Environment, InputSpec, JobSpec
from jobs.datasets.datasets import Datasets, materialise
from jobs.datasets.packed import INDEX_FILE, not_packed
from jobs.datasets.paths import DatasetFile, Inside, disk_errors
from jobs.datasets.records import require_digest
from jobs.engines.local.launchers import stream_cache_bytes
from jobs.host.files import finish_folder
from jobs.host.private import locked, make_folder
from jobs.host.structs import prepared
from jobs.rank.world import stream_file
from jobs.runs.signatures import signature_file, write_signature

STREAM_SCHEMA = 1
# The longest that Azure signs for an identity; a run's limit may be longer only where we sign.
AZURE_SAS_VALID_S = 7 * 86400
# For a run without a limit, and what one with a limit gets beside it: to fetch its index, to end.
LOCAL_SAS_VALID_S = 30 * 86400
SAS_MARGIN_S = 86400


class _Shard(Struct, frozen=True):
    path: str


class _Split(Struct, frozen=True):
    shards: tuple[_Shard, ...]


class _Index(Struct, frozen=True):
    """The part of a packed dataset's `index.json` that is needed here (docs/shards.md)."""

    splits: dict[str, _Split]


class StreamSource(Struct, frozen=True, kw_only=True):
    """A streamed input's file for a run, as trainer.data.streaming.source reads it; no secret."""

    schema: int
    endpoint: str
    sas_file: str
    cache: str
    cache_bytes: int
    md5: dict[str, str]


def give_inputs(spec: JobSpec, environment: Environment, run_dir: Path) -> dict[str, str]:
    """Make all inputs of a run ready; gives the folder of each.

    Raises LaunchError for one that cannot be given as the job wants it, or that does not arrive.
    """
    workspace = run_dir.parent.parent
    return {
        name: str(
            _stream(name, each, spec, environment, run_dir)
            if each.mode == "stream"
            else materialise(each.dataset, environment, workspace)
        )
        for name, each in spec.inputs.items()
    }


# --- streams ----------------------------------------------------------------------------------


def _stream(
    name: str, given: InputSpec, spec: JobSpec, environment: Environment, run_dir: Path
) -> Path:
    """Write the folder through which a run streams a dataset."""
    workspace, dataset = run_dir.parent.parent, given.dataset
    store = open_data_store(environment)
    kept = _bring_index(name, dataset, store, workspace)
    cache = workspace / "cache"
    folder, sas_file = run_dir / "inputs" / name, signature_file(run_dir, name)
    with disk_errors(folder):
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        cache.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir()
        for entry in (kept / "files").iterdir():
            (folder / entry.name).symlink_to(entry)
        source = StreamSource(
            schema=STREAM_SCHEMA,
            endpoint=_address(environment, dataset),
            sas_file=str(sas_file),
            cache=str(cache),
            cache_bytes=_cache_bytes(spec.env, cache),
            md5=msgspec.json.decode((kept / "md5.json").read_bytes(), type=dict[str, str]),
        )
        Path(stream_file(str(run_dir), name)).write_bytes(msgspec.json.encode(source))
        sas = store.read_only_sas(dataset.content_prefix, _valid_s(spec, environment))
        write_signature(sas_file, sas)
    return folder


def _bring_index(name: str, dataset: DatasetVersion, store: BlobStore, workspace: Path) -> Path:
    """Give `WORKSPACE/inputs/DIGEST.stream`: all files but the shards, and the shards' MD5s.

    Fetched by the first run that asks, under a lock that the others wait for.
    """
    require_digest(dataset.digest)
    inputs = workspace / "inputs"
    final = inputs / f"{dataset.digest}.stream"
    if final.is_dir():
        return final
    with ExitStack() as held, Datasets(store).files(dataset) as (files,):
        with disk_errors(inputs):
            make_folder(inputs)
            held.enter_context(locked(inputs / f".{final.name}.lock"))
        if final.is_dir():
            return final
        partial = inputs / f".{final.name}.partial"
        with disk_errors(partial):
            shutil.rmtree(partial, ignore_errors=True)
            (partial / "files").mkdir(parents=True)
        index = [file for file in files if file.path == INDEX_FILE]
        if not index:
            raise not_packed(name, dataset)
        _receive(store, dataset, index, partial / "files")
        shards = _shards_of(partial / "files" / INDEX_FILE, dataset)
        others = (file for file in files if file.path not in {INDEX_FILE, *shards})
        _receive(store, dataset, others, partial / "files")
        md5 = {
            file.path: base64.b64encode(bytes.fromhex(file.md5)).decode()
            for file in files
            if file.path in shards
        }
        if missing := shards - md5.keys():
            message = f"`{dataset.ref}` has no file `{min(missing)}`, which its index names"
            raise EnvironmentFailure(
                message, hint="launch data pack DIR --to PACKED, push it again"
            )
        with disk_errors(partial):
            (partial / "md5.json").write_bytes(msgspec.json.encode(md5))
            finish_folder(partial, final)
    return final


def _receive(
    store: BlobStore, dataset: DatasetVersion, files: Iterable[DatasetFile], folder: Path
) -> None:
    inside = Inside(folder)
    incoming = (
        Incoming(
            name=dataset.content_prefix + file.path,
            path=inside.place(file.path),
            bytes=file.bytes,
            sha256=file.sha256,
            mode=0o444,
        )
        for file in files
    )
    with disk_errors(folder):
        store.receive(incoming, lambda _files, _bytes, _found=0: None)


def _shards_of(path: Path, dataset: DatasetVersion) -> set[str]:
    try:
        index = msgspec.json.decode(path.read_bytes(), type=prepared(_Index))
    except (msgspec.MsgspecError, RecursionError) as error:
        message = f"`{INDEX_FILE}` of `{dataset.ref}` is not an index of shards: {error}"
        raise LaunchError(
            message, hint="launch data pack DIR --to PACKED, then push PACKED"
        ) from None
    return {shard.path for split in index.splits.values() for shard in split.shards}


def _cache_bytes(env: Mapping[str, str], cache: Path) -> int:
    """Give the cache's size: as the job says, else half of what is free or taken by the cache already."""
    wanted = stream_cache_bytes(env)
    if wanted is not None:
        return wanted
    return (shutil.disk_usage(cache).free + _taken(cache)) // 2


def _taken(cache: Path) -> int:
    """Bytes of the cache, from which ranks of other runs take blocks away meanwhile."""
    taken = 0
    for folder, _, names in os.walk(cache):
        for name in names:
            with suppress(OSError):
                taken += Path(folder, name).stat().st_size
    return taken


def _valid_s(spec: JobSpec, environment: Environment) -> int:
    """Give the seconds for which a run may need its signature."""
    limit_s = spec.limits.wall_clock_s
    wanted_s = math.ceil(limit_s) + SAS_MARGIN_S if limit_s else LOCAL_SAS_VALID_S
    return wanted_s if environment.engine == "local" else min(wanted_s, AZURE_SAS_VALID_S)


def _address(environment: Environment, dataset: DatasetVersion) -> str:
    storage = environment.storage
    prefix = dataset.content_prefix.rstrip("/")
    return f"{storage.blob_endpoint.rstrip('/')}/{storage.containers.data}/{quote(prefix)}"
