"""Lays the folder through which a node's ranks stream a packed dataset from the store.

As jobs/engines/local/inputs.py does on this machine (docs/inputs.md): all files but the shards, and beside that
folder a file that says where they are. What opens the store here is a token of the node's identity,
in a file that is kept fresh.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from typing import Any
from urllib.parse import quote

from jobs.rank.identity import STORAGE, Identity, NodeFailure
from jobs.rank.services import Container
from jobs.rank.settings import Settings
from jobs.rank.uploads import write_token
from jobs.rank.world import stream_file

INDEX_FILE = "index.json"
CACHE_VARIABLE = "TRAINYARD_STREAM_CACHE_BYTES"


class Streams:
    """The streamed inputs of a node's run directory."""

    def __init__(self, settings: Settings, run_dir: str, identity: Identity) -> None:
        self._settings, self._run_dir, self._identity = settings, run_dir, identity
        self._data = Container(settings.store, settings.data, identity)

    def lay(self, environ: dict[str, str]) -> None:
        """Make `inputs/NAME` for all of them; raises NodeFailure, OSError."""
        cache = f"{self._run_dir}/cache"
        os.makedirs(cache, exist_ok=True)
        # As the job says, else half of what is free.
        wanted = environ.get(CACHE_VARIABLE, "")
        cache_bytes = int(wanted) if wanted.isdecimal() else shutil.disk_usage(cache).free // 2
        for name, stream in self._settings.streams.items():
            folder = f"{self._run_dir}/inputs/{name}"
            os.makedirs(folder, exist_ok=True)
            try:
                md5 = self._bring_index(stream.files, stream.prefix, folder)
            except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
                message = f"input `{name}` cannot be streamed: {type(error).__name__}: {error}"
                hint = "launch data pack DIR --to PACKED, then push PACKED"
                raise NodeFailure(message, hint) from None
            token_file = f"{folder}.token"
            write_token(token_file, self._identity.token(STORAGE))
            source = {
                "schema": 1,
                "endpoint": self._address(stream.prefix),
                "token_file": token_file,
                "cache": cache,
                "cache_bytes": cache_bytes,
                "md5": md5,
            }
            with open(stream_file(self._run_dir, name), "w", encoding="utf-8") as file:
                json.dump(source, file)

    def _address(self, prefix: str) -> str:
        settings = self._settings
        return f"{settings.store}/{settings.data}/{quote(prefix.rstrip('/'))}"

    def _bring_index(self, listed: str, prefix: str, folder: str) -> dict[str, str]:
        """Bring all files but the shards; gives the shards' MD5s."""
        lines = self._data.get(listed).splitlines()
        files = {each["path"]: each for each in map(json.loads, lines)}
        index = json.loads(self._bring(prefix, files[INDEX_FILE], folder))
        shards = {each["path"] for split in index["splits"].values() for each in split["shards"]}
        for path, file in files.items():
            if path not in shards and path != INDEX_FILE:
                self._bring(prefix, file, folder)
        return {
            path: base64.b64encode(bytes.fromhex(files[path]["md5"])).decode() for path in shards
        }

    def _bring(self, prefix: str, file: dict[str, Any], folder: str) -> bytes:
        """Bring one file of the dataset, as it was when it was pushed."""
        path, target = file["path"], os.path.normpath(f"{folder}/{file['path']}")
        content = self._data.get(prefix + path)
        is_inside = target.startswith(f"{folder}/") and path.lower() != "stream.json"
        if not is_inside or hashlib.sha256(content).hexdigest() != file["sha256"]:
            message = f"`{path}` in the store differs from the pushed file"
            raise ValueError(message)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as written:
            written.write(content)
        return content
