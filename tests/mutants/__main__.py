"""Plants each mutant and fails where one survives: `python -m tests.mutants [MODULE...]`.

A MODULE is the beginning of a path, such as `jobs/rank`; without one, all are planted.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.mutants import examination, run
from tests.mutants.examination import Verdict
from tests.mutants.run import Result, Run
from tests.mutants.table import HERE, ROOT, Misplaced, Mutant, read_tables

LOG_LINES = 25


def main(
    argv: Sequence[str],
    *,
    root: Path = ROOT,
    tables: Path = HERE,
    heavy: Sequence[str] = examination.HEAVY,
) -> int:
    """Examine; 0 where every mutant is caught, 1 where not, 2 where one cannot be planted."""
    mutants = [each for each in read_tables(tables) if each.file.startswith(tuple(argv) or "")]
    try:
        for each in mutants:
            each.planted_in((root / each.file).read_text(encoding="utf-8"))
    except (Misplaced, OSError) as error:
        print(f"{error}\nhint: mend the mutant in tests/mutants, or plant another one there")
        return 2
    if not mutants:
        print(f"no mutant of {', '.join(argv)}; hint: name a module, such as jobs/rank/mask.py")
        return 2
    begun_s = time.monotonic()
    examination.warm_up(heavy)
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        trees = [Path(scratch, str(number)) for number in range(run.NUM_TREES)]
        for each in trees:
            run.copy_tree(root, each)
        verdicts = examine(mutants, root, trees)
    print(summary(verdicts, time.monotonic() - begun_s))
    return 0 if set(verdicts) == {Verdict.CAUGHT} else 1


def examine(mutants: Sequence[Mutant], root: Path, trees: Sequence[Path]) -> Sequence[Verdict]:
    """Say what the tests make of each mutant; none is planted where they fail without one."""
    files = sorted({file for each in mutants for file in each.tests})
    alone = [Run(number=number, tests=(file,)) for number, file in enumerate(files)]
    failing = [
        each
        for each in _counted(run.results(alone, root, trees), len(alone), "tests alone")
        if each.answer.verdict != Verdict.SURVIVED
    ]
    if failing:
        for each in failing:
            print(f"fails without a mutant: {each.run.tests[0]}: {each.answer.error}")
            _show_log(each, trees)
        return []
    runs = [
        Run(number=number, tests=each.tests, mutant=each)
        for number, each in enumerate(mutants, len(files))
    ]
    verdicts: list[Verdict] = []
    for each in _counted(run.results(runs, root, trees), len(runs), "mutants"):
        verdicts.append(each.answer.verdict)
        print(line(each))
        if each.answer.verdict == Verdict.BROKEN:
            _show_log(each, trees)
    return verdicts


def line(result: Result) -> str:
    """Tell one mutant's end: by which test it was caught, or which ones let it pass."""
    mutant, answer = result.run.mutant, result.answer
    assert mutant is not None
    where = answer.phase or f"pytest ended with {answer.exit_code}"
    by = {
        Verdict.CAUGHT: f"by {answer.failed}",
        Verdict.SURVIVED: f"{', '.join(mutant.tests)} passed",
        Verdict.BROKEN: f"no test failed by it: {where}: {answer.error}",
    }[answer.verdict]
    return f"{answer.verdict:8} {result.took_s:4.1f} s  {mutant.file}: {mutant.what}; {by}"


def summary(verdicts: Sequence[Verdict], took_s: float) -> str:
    """Count them: planted, caught, survived, broken, seconds."""
    caught, survived, broken = (
        sum(each == verdict for each in verdicts)
        for verdict in (Verdict.CAUGHT, Verdict.SURVIVED, Verdict.BROKEN)
    )
    return (
        "\nplanted  caught  survived  broken  seconds\n"
        f"{len(verdicts):7}  {caught:6}  {survived:8}  {broken:6}  {took_s:7.0f}"
    )


def _counted(ended: Iterator[Result], number: int, what: str) -> Iterator[Result]:
    """Count on a terminal; a log gets its lines alone."""
    shows = sys.stderr.isatty()
    for done, each in enumerate(ended, 1):
        if shows:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        yield each
        if shows and done < number:
            print(f"{what}: {done} of {number}", end="", file=sys.stderr, flush=True)


def _show_log(result: Result, trees: Sequence[Path]) -> None:
    log = examination.log_of(run.answer_file(result.run, trees[0]))
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    print("\n".join(f"    {each}" for each in lines[-LOG_LINES:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
