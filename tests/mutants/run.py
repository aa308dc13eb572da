"""Plants mutants in copies of the tree, two at a time, and tells which the tests catch."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutants import examination
from tests.mutants.examination import Answer
from tests.mutants.table import Mutant

NUM_TREES = 2
# What set-up made and no mutant changes.
SHARED = (".venv", ".trainyard")
# A planted text has a time of its own: no compiled file of another one passes for its own.
FIRST_PLANTED_S = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Run:
    """One examination: of a mutant, or of the tests alone."""

    number: int
    tests: tuple[str, ...]
    mutant: Mutant | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run ended."""

    run: Run
    answer: Answer
    took_s: float


def copy_tree(root: Path, tree: Path) -> None:
    """Copy what git would commit of a checkout; link what set-up made."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (root / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, tree / name, follow_symlinks=False)
    for name in SHARED:
        if (root / name).exists():
            (tree / name).symlink_to(root / name)


@contextmanager
def planted(run: Run, tree: Path) -> Iterator[None]:
    """Have a run's mutant in the tree, and the module as it was afterwards."""
    if run.mutant is None:
        yield
        return
    module = tree / run.mutant.file
    text, stat = module.read_text(encoding="utf-8"), module.stat()
    module.write_text(run.mutant.planted_in(text), encoding="utf-8")
    os.utime(module, (FIRST_PLANTED_S + run.number,) * 2)
    try:
        yield
    finally:
        module.write_text(text, encoding="utf-8")
        os.utime(module, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def results(runs: Sequence[Run], root: Path, trees: Sequence[Path]) -> Iterator[Result]:
    """Run them, one in each tree at a time, and give each as it ends."""
    waiting, free = list(reversed(runs)), list(trees)
    under_way: dict[int, _UnderWay] = {}
    try:
        while waiting or under_way:
            while waiting and free:
                begun = _begin(waiting.pop(), root, free.pop())
                under_way[begun.pid] = begun
            pid, status = os.wait()
            ended = under_way.pop(pid)
            ended.plant.close()
            free.append(ended.tree)
            yield Result(
                run=ended.run,
                answer=examination.read_answer(ended.answer, status),
                took_s=time.monotonic() - ended.start_s,
            )
    finally:
        for pid in under_way:
            os.waitpid(pid, 0)


def answer_file(run: Run, tree: Path) -> Path:
    """Where a run's answer will be: beside the copies."""
    return tree.parent / f"{run.number}.json"


@dataclass(frozen=True, kw_only=True)
class _UnderWay:
    run: Run
    tree: Path
    plant: ExitStack
    answer: Path
    pid: int
    start_s: float


def _begin(run: Run, root: Path, tree: Path) -> _UnderWay:
    plant = ExitStack()
    plant.enter_context(planted(run, tree))
    answer = answer_file(run, tree)
    return _UnderWay(
        run=run,
        tree=tree,
        plant=plant,
        answer=answer,
        pid=examination.start(tree, root, run.tests, answer),
        start_s=time.monotonic(),
    )
