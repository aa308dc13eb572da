"""Finds the folders of a run: where inputs lie, and where metrics, summary and outputs go."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainer.common.errors import TrainingError
from trainer.common.whole_file import write_whole

_INPUT = "TRAINYARD_INPUT_"
_OUTPUT = "TRAINYARD_OUTPUT_"
# Outputs of our programs.
OUTPUTS = ("model", "predictions", "profile")
OUTPUT_HINT = "--output-dir DIR, a folder that can be written to, on a disk with some space"


@dataclass(frozen=True, kw_only=True)
class RunDir:
    """A run's folders; without Trainyard everything goes to `./outputs`."""

    path: Path
    outputs: Path
    checkpoints: Path | None = None
    named_inputs: Mapping[str, Path] = field(default_factory=dict[str, Path])
    named_outputs: Mapping[str, Path] = field(default_factory=dict[str, Path])

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        output_dir: Path | None = None,
    ) -> RunDir:
        """Read TRAINYARD_RUN_DIR, _CHECKPOINT_DIR, _INPUT_<NAME> and _OUTPUT_<NAME>.

        `output_dir` stands for `./outputs`; outputs that a job declares stay where it has them.
        Without a checkpoint folder in the environment `checkpoints` is None: a program started
        by hand must not take up what another one left in `./outputs`.
        """
        environ = os.environ if environ is None else environ
        outputs = (cwd or Path.cwd()) / (output_dir or "outputs")
        checkpoints = environ.get("TRAINYARD_CHECKPOINT_DIR")
        return cls(
            path=Path(environ.get("TRAINYARD_RUN_DIR") or outputs),
            outputs=outputs,
            checkpoints=Path(checkpoints) if checkpoints else None,
            named_inputs=_folders(environ, _INPUT),
            named_outputs=_folders(environ, _OUTPUT),
        )

    @property
    def metrics(self) -> Path:
        """The metrics file (docs/run-directory.md)."""
        return self.path / "metrics.jsonl"

    def input(self, name: str) -> Path:
        """Give the folder of the input `name`, else the only input there is."""
        found = self.named_inputs.get(name.upper())
        if found is None and len(self.named_inputs) == 1:
            found = next(iter(self.named_inputs.values()))
        if found is None:
            message = f"no input `{name}` was handed to this run"
            raise TrainingError(message, hint="name the folder with --data DIR")
        return found

    def output(self, name: str) -> Path:
        """Give the folder of the output `name`; made where it is missing.

        Raises TrainingError where the disk refuses.
        """
        folder = self.named_outputs.get(name.upper(), self.outputs / name)
        _make(folder)
        return folder

    def require_outputs(self) -> None:
        """Raises TrainingError where nothing can be written to an output: at once, not at the end.

        A folder that is not there yet is made, but for those of outputs that the job does not declare,
        of which a program writes some. Nothing is left in it.
        """
        undeclared = (self.outputs / name for name in OUTPUTS)
        there = (each for each in undeclared if os.path.lexists(each))
        for folder in (self.outputs, *self.named_outputs.values(), *there):
            _make(folder)
            try:
                tempfile.TemporaryFile(dir=folder).close()
            except OSError as error:
                message = f"the output folder `{folder}` cannot be written to: {error.strerror}"
                raise TrainingError(message, hint=OUTPUT_HINT) from None

    def write_summary(self, figures: Mapping[str, object]) -> None:
        """Write `summary.json` whole or not at all; raises TrainingError where the disk refuses."""
        text = json.dumps(figures, indent=2, allow_nan=False) + "\n"
        write_whole(self.path / "summary.json", text.encode())


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the output folder `{folder}` cannot be made: {error.strerror}"
        raise TrainingError(message, hint=OUTPUT_HINT) from None


def _folders(environ: Mapping[str, str], prefix: str) -> dict[str, Path]:
    names = sorted(name for name in environ if name.startswith(prefix))
    return {name.removeprefix(prefix): Path(environ[name]) for name in names}
