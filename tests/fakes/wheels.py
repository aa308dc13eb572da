"""Makes wheels of one module, so that tests install packages without an index."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str, text: str, *requires: str) -> Path:
    """Write the wheel of a module with this text into the folder; it needs `requires`."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    needed = "".join(f"Requires-Dist: {each}\n" for each in requires)
    information = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": text,
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{information}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for inner, content in files.items():
            archive.writestr(inner, content)
    return path


def requirement(wheel: Path) -> str:
    """Write the requirement of a wheel with its hash."""
    name, version, *_ = wheel.name.split("-")
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
