"""Packs the program that starts a rank into one file that travels: a zip that Python runs as it is."""

from __future__ import annotations

import io
import marshal
from collections.abc import Iterator, Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER
from pathlib import Path

# The file, and what every engine starts ranks by; an engine may add modules.
PROGRAM_FILE = "rank.pyz"
RANK_MODULES = (
    *("main", "flight", "folder", "keras_home", "layer", "log", "mask", "memory"),
    *("node", "notebook", "placeholders", "places", "record", "signals", "world"),
)
_MAIN = "import sys\n\nfrom jobs.rank.main import main\n\nsys.exit(main())\n"
_WHEN = (1980, 1, 1, 0, 0, 0)
# Of a compiled module's head: it is not to be compared with its source (PEP 552).
_UNCHECKED = (1).to_bytes(4, "little") + bytes(8)


def rank_program() -> bytes:
    """Pack the program that starts a rank as RANK.json says.

    Quickly so where Python is of this one's version: each module is there compiled, too.
    """
    compiled = ((f"jobs/rank/{name}.pyc", _compile(name)) for name in RANK_MODULES)
    return _zip([("__main__.py", _MAIN.encode()), *compiled, *_sources(RANK_MODULES)])


def zip_program(main: str, modules: Sequence[str]) -> bytes:
    """Pack the text `main` and modules of `jobs`: equal bytes for equal texts."""
    return _zip([("__main__.py", main.encode()), *_sources(modules)])


def _sources(modules: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    yield "jobs/__init__.py", b""
    yield "jobs/rank/__init__.py", b""
    for name in modules:
        yield f"jobs/rank/{name}.py", _path(name).read_bytes()


def _path(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.py")


def _compile(name: str) -> bytes:
    """Compile a module, or read it from the cache beside the source."""
    code = SourceFileLoader(f"jobs.rank.{name}", str(_path(name))).get_code(f"jobs.rank.{name}")
    return MAGIC_NUMBER + _UNCHECKED + marshal.dumps(code)


def _zip(files: Sequence[tuple[str, bytes]]) -> bytes:
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files:
            info = zipfile.ZipInfo(name, date_time=_WHEN)
            # Else it would say on which system it was made.
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, content)
    return made.getvalue()
