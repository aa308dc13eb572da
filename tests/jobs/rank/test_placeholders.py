"""Placeholders on a node: each value in its place once, and nothing that a shell would run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.rank.placeholders import Placeholders, has_placeholder, shell_text
from jobs.rank.world import RankJob, World
from tests.busy import HANG_S

WORLD = World(3, 4, 1, 2, 1, "127.0.0.1", "1")
HOSTILE = "/in/$(touch x) ${rank}; 'a\""


def fill(inputs: dict[str, str] | None = None) -> Placeholders:
    job = RankJob("/run", ["x"], inputs=inputs or {"words": "/in"}, outputs=["model"], run="R-1")
    return Placeholders(job, WORLD)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("${inputs.words}/a.txt", "/in/a.txt"),
        ("--to=${outputs.model}", "--to=/run/outputs/model"),
        ("${run.id}-${rank}-${local_rank}-${world_size}", "R-1-3-1-4"),
        ("$${inputs.words} $${rank} $$${rank}", "${inputs.words} ${rank} $${rank}"),
        ("${HOME} $HOME $${HOME} $rank {rank} ${ranks} ${{inputs.words}} $${{rank}}", None),
        ("${AZUREML_RUN_ID} $AZUREML_X ${rank:-0} ${inputs[0]} ${data.words} $$", None),
        ("${inputs.other}", None),
    ],
)
def test_a_word_is_filled_and_other_text_is_left_alone(text: str, filled: str | None) -> None:
    assert fill().word(text) == (text if filled is None else filled)


def test_a_value_is_not_read_again() -> None:
    assert fill({"words": HOSTILE}).word("<${inputs.words}>") == f"<{HOSTILE}>"


@pytest.mark.parametrize(
    ("command", "number"),
    [
        (["bash", "-c", "text"], 2),
        (["/bin/sh", "-euc", "text", "more"], 2),
        (["env", "A=b", "bash", "-o", "pipefail", "-c", "text"], 6),
        (["bash", "-c", "-e", "text"], 3),
        (["bash", "-euo", "pipefail", "-c", "text"], 4),
        (["bash", "--norc", "-c", "text"], 3),
        (["bash", "run.sh", "-c", "word"], -1),
        (["python", "-c", "text"], -1),
        (["bash"], -1),
        (["bash", "-c"], -1),
    ],
)
def test_the_text_that_a_shell_reads_is_found(command: list[str], number: int) -> None:
    assert shell_text(command) == number


def test_a_shells_text_gets_the_variable_and_its_arguments_the_path() -> None:
    words = [
        "bash",
        "-c",
        "ls ${inputs.words} ${outputs.model} ${rank} $${rank}",
        "${inputs.words}",
    ]
    assert fill({"words": HOSTILE}).command(words) == [
        "bash",
        "-c",
        "ls ${TRAINYARD_INPUT_WORDS} ${TRAINYARD_OUTPUT_MODEL} 3 ${rank}",
        HOSTILE,
    ]


@pytest.mark.parametrize(
    ("text", "is_there"), [("${rank}", True), ("$${run.id}", True), ("$rank ${HOME}", False)]
)
def test_a_text_with_a_placeholder_is_known(text: str, is_there: bool) -> None:
    assert has_placeholder(text) is is_there


def test_a_rank_fills_command_setup_and_the_named_variables_only(tmp_path: Path) -> None:
    words = tmp_path / "$(touch evil) words"
    words.mkdir()
    for name in ("code", "logs", "nodes", "outputs", "ranks"):
        (tmp_path / name).mkdir()
    shell = 'printf "%s\\n" "${inputs.words}" "$1" "$OURS" "$SECRET" "$(cat prepared)"'
    job: dict[str, Any] = {
        "run_dir": str(tmp_path),
        "run": "R-1",
        "command": ["sh", "-c", shell, "sh", "${inputs.words}/${rank}"],
        "setup": ['printf "%s" "${inputs.words}" > prepared'],
        "inputs": {"words": str(words)},
        "filled": ["OURS"],
        "secrets": ["SECRET"],
    }
    (tmp_path / "rank.json").write_text(json.dumps(job))
    start = "import sys; from jobs.rank.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", start, str(tmp_path / "rank.json")],
        env={"PATH": "/usr/bin:/bin", "OURS": "${run.id}:${rank}", "SECRET": "a ${rank}"},
        cwd=Path(__file__).parents[3],
        timeout=HANG_S,
        check=False,
    )
    log = (tmp_path / "logs" / "rank-00000.log").read_text()
    said = [line.partition(" ")[2] for line in log.splitlines() if not line.count("warning:")]
    # The secret was not filled: it is masked as it is.
    assert (done.returncode, said) == (0, [str(words), f"{words}/0", "R-1:0", "***", str(words)])
    assert not list(tmp_path.rglob("evil"))
