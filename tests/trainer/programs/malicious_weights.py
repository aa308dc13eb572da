"""Makes files of weights that would run code or break a reader, and lets load_weights read each.

    main([])     in an empty folder

Prints as JSON by file what came of it; a file named `canary` says that code ran.
"""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import struct
import subprocess
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from trainer.common.errors import TrainingError
from trainer.pytorch.state import load_weights

FOLDER = Path.cwd()
TOUCH = f"touch '{FOLDER / 'canary'}'"
OPEN = f"open({str(FOLDER / 'canary')!r}, 'w').close()"


class Calls:
    """Unpickled, it calls the function."""

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return self.call


class Builds:
    """Unpickled, its state is set by a function of ours."""

    def __getstate__(self) -> dict[str, str]:
        return {"command": TOUCH}

    def __setstate__(self, state: Mapping[str, str]) -> None:
        os.system(state["command"])


def legacy(value: object) -> bytes:
    target = io.BytesIO()
    torch.save(value, target, _use_new_zipfile_serialization=False)
    return target.getvalue()


def modern(value: object) -> bytes:
    target = io.BytesIO()
    torch.save(value, target)
    return target.getvalue()


def zip_with_pickle(data: bytes, name: str = "archive/data.pkl") -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(name, data)
        archive.writestr("archive/version", "3")
    return target.getvalue()


def tar_with_pickle(data: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name in ("sys_info", "pickle", "tensors", "storages"):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return target.getvalue()


def script() -> bytes:
    target = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), target)
    return target.getvalue()


def header(content: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(start: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def files() -> dict[str, bytes]:
    system = Calls(os.system, TOUCH)
    good = modern({"weight": torch.zeros(2)})
    return {
        "reduce.pt": modern(system),
        "reduce-in-a-dict.pt": modern({"weight": torch.zeros(2), "more": [system]}),
        "reduce-as-key.pt": modern(OrderedDict([("a", torch.zeros(1)), ("b", system)])),
        "legacy-reduce.pth": legacy(system),
        "legacy-dict.pth": legacy({"weight": torch.zeros(2), "more": system}),
        "plain-pickle.pt": pickle.dumps(system),
        "protocol-0.pt": pickle.dumps(system, protocol=0),
        "eval.pt": modern(Calls(eval, OPEN)),
        "exec.pt": modern(Calls(exec, OPEN)),
        "popen.pt": modern(Calls(subprocess.Popen, ["sh", "-c", TOUCH])),
        "getattr.pt": modern(Calls(getattr, Calls(__import__, "os"), "system")),
        "partial.pt": modern(functools.partial(os.system, TOUCH)),
        "build.pt": modern(Builds()),
        "whole-module.pt": modern(torch.nn.Linear(2, 2)),
        "zip.pt": zip_with_pickle(pickle.dumps(system)),
        "zip-elsewhere.pt": zip_with_pickle(pickle.dumps(system), "../../data.pkl"),
        "tar.pt": tar_with_pickle(pickle.dumps(system)),
        "script.pt": script(),
        "cut.pt": good[: len(good) // 2],
        "empty.pt": b"",
        "text.pt": b"not weights\n",
        "pickle.safetensors": pickle.dumps(system),
        "torch.safetensors": modern(system),
        "empty.safetensors": b"",
        "header-too-long.safetensors": header({}, length=1 << 62),
        "header-beyond-the-file.safetensors": header({}, length=1000),
        "header-no-json.safetensors": header(b"{'a': exit()}"),
        "header-a-list.safetensors": header([1, 2]),
        "beyond-the-file.safetensors": header({"a": entry(0, 4000, [1000])}, b"\0" * 8),
        "before-the-file.safetensors": header({"a": entry(-8, 0, [2])}, b"\0" * 8),
        "overlapping.safetensors": header(
            {"a": entry(0, 8, [2]), "b": entry(4, 12, [2])}, b"\0" * 12
        ),
        "shape-too-large.safetensors": header({"a": entry(0, 8, [1 << 62, 4])}, b"\0" * 8),
        "other-dtype.safetensors": header({"a": entry(0, 8, [2], "PICKLE")}, b"\0" * 8),
        "not-of-the-shape.safetensors": header({"a": entry(0, 8, [3])}, b"\0" * 8),
    }


def main(_argv: Sequence[str]) -> None:
    """Try every file."""
    told: dict[str, str] = {}
    for name, data in files().items():
        (FOLDER / name).write_bytes(data)
        try:
            load_weights(FOLDER / name)
            told[name] = "loaded"
        except TrainingError as error:
            told[name] = f"refused: {error}"
        except Exception as error:  # noqa: BLE001 - what came of it is the answer
            told[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(told))
