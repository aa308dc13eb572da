"""Modules that only decide: each brings its own mutants.

Those that need torch, tensorflow or horovod (trainer/pytorch, trainer/tf, images) stay out: their tests
run in the runtimes, and most of them train, for seconds to minutes, which each mutant would take again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOMS = ("infra", "jobs", "tools", "trainyard", "trainer/common", "trainer/data")
# They act by a line or two (load a library, look for a file, answer a request, draw numbers), and
# decide much.
ALSO = (
    "infra/pending_creates.py",
    "jobs/foresight/fit.py",
    "jobs/jobfile/yaml_tree.py",
    "jobs/launching/imports/batchai_job.py",
    "jobs/launching/imports/batchai_mounts.py",
    "jobs/rank/memory.py",
    "jobs/ui/guard.py",
)
# Verbs print what others decided.
BESIDE = ("jobs/commands",)
# A module with fewer decisions holds data, or hands on.
NUM_DECISIONS = 10
# What these give acts on the machine or the net, or depends on them ...
_MACHINE = {"ctypes", "fcntl", "os", "platform", "pwd", "selectors", "shutil", "signal", "sys"}
_PROCESSES = {"asyncio", "concurrent", "multiprocessing", "queue", "subprocess", "threading"}
_FILES = {"PIL", "importlib", "sqlite3", "tarfile", "tempfile", "zipfile"}
_NET = {"aiohttp", "azure", "http", "pulumi", "pulumi_azure_native", "socket", "ssl", "urllib"}
_CHANCE = {"random", "time", "uuid"}
_SHOWN = {"matplotlib", "numpy", "rich", "typer", "yaml"}
ACTING = _MACHINE | _PROCESSES | _FILES | _NET | _CHANCE | _SHOWN
# ... and through these of ours others act: clients, stores, threads.
OUR_ACTING = {
    "jobs.blobs.store",
    "jobs.engines.azure_ml.client",
    "jobs.engines.azure_ml.runs",
    "jobs.engines.base",
    "jobs.host.parallel",
}
# Methods by which a path asks the disk, or changes it.
_ASKED = {"absolute", "cwd", "exists", "glob", "home", "is_dir", "is_file", "is_symlink", "iterdir"}
_READ = {"lstat", "open", "read_bytes", "read_text", "readlink", "resolve", "rglob", "stat"}
_CHANGED = {"chmod", "mkdir", "rename", "symlink_to", "touch", "unlink"}
_WRITTEN = {"write_bytes", "write_text"}
ON_DISK = _ASKED | _READ | _CHANGED | _WRITTEN
DECISIONS = (ast.If, ast.IfExp, ast.Compare, ast.BoolOp)
# What a line says that imports one of them, and no sentence does: the rest is parsed.
_ONE = f"(?:{'|'.join(sorted(ACTING))})"
_ACTS = re.compile(
    rf"^(?:import {_ONE}(?: as \w+)?|from {_ONE}(?:\.[\w.]+)? import .+)$", re.MULTILINE
)


def pure_modules(root: Path) -> Sequence[str]:
    """Give the paths, relative to `root`, of all modules that only decide, and of those beside them."""
    found = {
        path.relative_to(root).as_posix()
        for room in ROOMS
        for path in (root / room).rglob("*.py")
        if not path.relative_to(root).as_posix().startswith(BESIDE)
        and only_decides(path.read_text(encoding="utf-8"))
    }
    return sorted(found.union(ALSO))


def only_decides(source: str) -> bool:
    """Whether a module decides things and reaches neither disk, machine, clock nor net."""
    if _ACTS.search(source):
        return False
    nodes = list(ast.walk(ast.parse(source)))
    if any(isinstance(each, ast.AsyncFunctionDef) for each in nodes):
        return False
    imports = [each for each in nodes if isinstance(each, ast.Import | ast.ImportFrom)]
    imported = {name for each in imports for name in _imported(each)}
    if imported & OUR_ACTING or {name.partition(".")[0] for name in imported} & ACTING:
        return False
    called = {each.func.attr for each in nodes if _is_method_call(each)}
    if called & ON_DISK:
        return False
    return sum(isinstance(each, DECISIONS) for each in nodes) >= NUM_DECISIONS


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names)
    elif node.module:
        yield node.module
        yield from (f"{node.module}.{each.name}" for each in node.names)


def _is_method_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
