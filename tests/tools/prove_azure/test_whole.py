"""The whole proof against the stand-in: every step, every assumption, and nothing is left."""

from __future__ import annotations

import pytest

from tests.fakes.azureml import Deviation
from tests.fakes.one_azure.proof import Proof
from tools.prove_azure.steps import PUBLIC
from tools.prove_azure.unknowns import ROWS

# A dev stack has no private endpoints in its group.
UNSEEN = {"U11"}
# A minute of importing frameworks, and what they settle.
FRAMEWORKS = ("image", "train", "torch", "tensorflow")
THEIRS = {"U15", "U16", "U17", "U20"}


@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("without", [(), FRAMEWORKS], ids=["whole", "without frameworks"])
def test_every_step_is_done_every_assumption_is_seen_and_nothing_is_left(
    proof: Proof, without: tuple[str, ...]
) -> None:
    proof.azure.deviate(Deviation.QUOTA_ZERO)
    steps = [step.name for step in PUBLIC if step.name not in without]
    code = proof.prove("--only", *steps)
    assert (code, proof.steps()) == (0, dict.fromkeys(steps, "done"))
    verdicts = {row["id"]: row["verdict"] for row in proof.report()["unknowns"]}
    unseen = UNSEEN | (THEIRS if without else set())
    assert verdicts == {row.id: "not seen" if row.id in unseen else "held" for row in ROWS}
    assert proof.azure.live() == set()
    report = (proof.folder / "report.md").read_text()
    log = (proof.folder / "log.txt").read_text()
    secret = proof.azure.vault.secrets["prove-secret"]
    for private in (secret, proof.azure.place.subscription_id, "ada@example.com"):
        assert private not in report
    assert secret not in log
