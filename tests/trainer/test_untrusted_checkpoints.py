"""Checkpoints and weights of others: they are refused, and none runs code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jobs.images.runtimes import PROJECT
from tests.campaign import campaign
from tests.fakes.torch_ranks import Zygote

MALICIOUS = "tests.trainer.programs.malicious_weights"
# Readers that run what they read, in any spelling that they are called by here.
RUNS_WHAT_IT_READS = re.compile(
    r"\b(?:c|cloud)?[pP]ickle\.(?:loads?|Unpickler)\b|\bimport pickle\b|\bmarshal\.loads?\b"
    r"|\bweights_only\s*=\s*False|\ballow_pickle\s*=\s*True|\bsafe_mode\s*=\s*False"
    r"|\byaml\.(?:load|load_all|unsafe_load|full_load)\b|\bYAML\(typ=.unsafe|\bjoblib\.load\b"
    r"|\bshelve\.open\b|\bunsafe_deserialization\b"
)
# What the process that started it says, by a socket that nobody else has; files and names are data in it.
OF_OUR_OWN = {
    "trainer/data/pictures/decoding_worker.py: import pickle",
    "trainer/data/pictures/decoding_worker.py: part: Request = pickle.loads(request)"
    "  # noqa: S301 - from the process that started this one",
}
TORCH_LOAD = re.compile(r"\btorch\.load\((?P<arguments>[^()]*(?:\([^()]*\)[^()]*)*)\)")


def sources() -> list[Path]:
    return [path for island in ("trainer", "jobs") for path in (PROJECT / island).rglob("*.py")]


def test_nothing_of_ours_reads_what_could_run():
    found = {
        f"{path.relative_to(PROJECT)}: {line.strip()}"
        for path in sources()
        for line in path.read_text().splitlines()
        if RUNS_WHAT_IT_READS.search(line)
    }
    assert found == OF_OUR_OWN


def test_torch_reads_weights_only():
    calls = [call for path in sources() for call in TORCH_LOAD.finditer(path.read_text())]
    assert calls
    assert [call[0] for call in calls if "weights_only=True" not in call["arguments"]] == []


@pytest.mark.parametrize(
    "line",
    [
        "pickle.load(file)",
        "import pickle",
        "cloudpickle.loads(data)",
        "yaml.load(text)",
        "numpy.load(path, allow_pickle = True)",
        "torch.load(path, weights_only=False)",
        "keras.models.load_model(path, safe_mode=False)",
    ],
)
def test_the_gate_would_see_it(line):
    assert RUNS_WHAT_IT_READS.search(line)


def test_malicious_weights_are_refused_and_run_nothing(zygote: Zygote, tmp_path: Path) -> None:
    told = json.loads(zygote.run(MALICIOUS, folder=tmp_path).splitlines()[-1])
    refused = {name for name, what in told.items() if what.startswith("refused: no weights can ")}
    has_run = (tmp_path / "canary").exists()
    survived = 0 if has_run else len(refused)
    campaign("Malicious weights refused, PyTorch", tried=len(told), survived=survived)
    assert {name: what for name, what in told.items() if name not in refused} == {}
    assert not has_run
    assert len(told) >= 25
