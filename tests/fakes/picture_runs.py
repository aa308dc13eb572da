"""Runs the picture programs of PyTorch on real ranks, and reads what they leave behind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.torch_ranks import Strategy, Zygote, start_gang

REPO = Path(__file__).parents[2]
CHECKS = "tests.integration.programs.picture_checks"
CALLS = "tests.integration.programs.calls"
# Beside other tests a run of seconds may take minutes.
RUN_TIMEOUT_S = 420


@dataclass(frozen=True)
class Trained:
    """What one run left behind."""

    folder: Path
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]

    def curve(self, split: str, name: str) -> list[tuple[int, float]]:
        """Step and value of each line."""
        return [
            (line["step"], line["value"])
            for line in self.metrics
            if (line["split"], line["name"]) == (split, name)
        ]


def run_ranks(
    zygote: Zygote,
    argv: Sequence[str],
    *,
    folder: Path,
    strategy: Strategy = "ddp",
    size: int = 1,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run `argv` of picture_checks.py on so many ranks to its good end."""
    gang = start_gang(zygote, [CHECKS, *argv], strategy=strategy, size=size, folder=folder, env=env)
    try:
        codes = gang.wait(RUN_TIMEOUT_S)
        assert codes == [0] * size, gang.texts()
    finally:
        gang.end()


def train(zygote: Zygote, module: str, *argv: str, folder: Path, **options: Any) -> Trained:
    """Train on real ranks."""
    run_ranks(zygote, ["train", module, *argv], folder=folder, **options)
    return read_run(folder)


def read_run(folder: Path) -> Trained:
    """Read a run's directory."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return Trained(
        folder=folder,
        summary=json.loads((folder / "summary.json").read_text()),
        metrics=[json.loads(line) for line in lines],
    )


@dataclass(frozen=True)
class Said:
    """The exit code of a program that was called, and what it said."""

    code: int
    out: str
    errors: str

    @property
    def last_error(self) -> str:
        """The last line on stderr."""
        return self.errors.splitlines()[-1]


def call(
    zygote: Zygote,
    folder: Path,
    module: str,
    *cases: Sequence[str],
    env: Mapping[str, str] | None = None,
) -> list[Said]:
    """Call a program with each of these arguments, in one process in the folder."""
    return call_each(zygote, folder, [(module, each, {}) for each in cases], env=env)


def call_each(
    zygote: Zygote,
    folder: Path,
    cases: Sequence[tuple[str, Sequence[str], Mapping[str, str]]],
    *,
    env: Mapping[str, str] | None = None,
) -> list[Said]:
    """Call programs with these arguments and variables, in one process in the folder."""
    file = folder / "calls.json"
    file.write_text(json.dumps(cases))
    given = {"CUDA_VISIBLE_DEVICES": "", **(env or {})}
    printed = zygote.run(CALLS, str(file), folder=folder, env=given)
    file.unlink()
    return [Said(*each) for each in json.loads(printed.splitlines()[-1])]
