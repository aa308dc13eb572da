"""Fills the placeholders of a job's words on its node: `${inputs.NAME}`, `${run.id}`, `${rank}` and others.

docs/job-file.md lists them. Text that is none of them stays as it is; `$${` in front of one writes
`${`. A value is put in once and never read again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from jobs.rank.world import RankJob, World

# Each with what stands before it: a second `$` makes it plain text. Those whose first part is nearly
# ours count, too: jobs/jobfile/placeholders.py refuses them before anything starts.
PLACEHOLDER = re.compile(
    r"(?P<escape>\$?)\$\{(?P<name>(?:inputs?|outputs?|run|secrets?)\.[^{}$\s]*"
    r"|rank|local_rank|world_size)\}"
)
RUN_WORDS = ("run.id", "world_size")
RANK_WORDS = ("rank", "local_rank")
SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "ash")


def has_placeholder(text: str) -> bool:
    """Tell whether a text reads otherwise once it is filled."""
    return PLACEHOLDER.search(text) is not None


def shell_text(command: Sequence[str]) -> int:
    """Find the word of a command that a shell reads as its program (`sh -c TEXT`); -1 if none."""
    starts = (i for i, word in enumerate(command) if word.rpartition("/")[2] in SHELLS)
    is_program = is_value = False
    for number in range(next(starts, len(command)) + 1, len(command)):
        word = command[number]
        if is_value:
            is_value = False
        elif word != "-" and word.startswith(("-", "+")):
            is_single = not word.startswith("--")
            is_program = is_program or (is_single and "c" in word)
            is_value = is_single and word.lower().endswith("o")  # `-o pipefail`
        else:
            return number if is_program else -1
    return -1


class Placeholders:
    """The values of one rank's placeholders."""

    def __init__(self, job: RankJob, world: World) -> None:
        self._values = {
            "run.id": job.run,
            "rank": str(world.rank),
            "local_rank": str(world.local_rank),
            "world_size": str(world.size),
        }
        self._variables: dict[str, str] = {}
        for name, path in job.inputs.items():
            self._values[f"inputs.{name}"] = path
            self._variables[f"inputs.{name}"] = f"TRAINYARD_INPUT_{name.upper()}"
        for name in job.outputs:
            self._values[f"outputs.{name}"] = f"{job.run_dir}/outputs/{name}"
            self._variables[f"outputs.{name}"] = f"TRAINYARD_OUTPUT_{name.upper()}"

    def word(self, text: str) -> str:
        """Fill a text that no shell reads."""
        return _fill(text, self._values.get)

    def shell(self, text: str) -> str:
        """Fill a shell's text: a path becomes its variable, so that the shell never reads it as code."""

        def value(name: str) -> str | None:
            variable = self._variables.get(name)
            return self._values.get(name) if variable is None else f"${{{variable}}}"

        return _fill(text, value)

    def command(self, words: Sequence[str]) -> list[str]:
        """Fill the words of a command."""
        program = shell_text(words)
        return [
            self.shell(word) if number == program else self.word(word)
            for number, word in enumerate(words)
        ]


def _fill(text: str, value: Callable[[str], str | None]) -> str:
    def put(found: re.Match[str]) -> str:
        if found["escape"]:
            return found[0][1:]
        known = value(found["name"])
        return found[0] if known is None else known

    return PLACEHOLDER.sub(put, text)
