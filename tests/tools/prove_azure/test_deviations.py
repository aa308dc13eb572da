"""With each deviation of Azure switched on, the report names the assumption that does not hold.

And a proof that may not take longer ends on the same stack, which takes its time to come up.
"""

from __future__ import annotations

import pytest

from tests.fakes.one_azure.proof import Proof
from tests.tools.prove_azure.deviations import ROWS, Row, prove


def rows(*, on_a_stack: bool, is_quick: bool) -> pytest.MarkDecorator:
    chosen = [row for row in ROWS if (row.on_a_stack, row.is_quick) == (on_a_stack, is_quick)]
    return pytest.mark.parametrize("row", chosen, ids=lambda row: str(row.deviation))


@rows(on_a_stack=True, is_quick=True)
def test_a_deviation_on_a_stack_is_named(up: Proof, row: Row) -> None:
    assert set(prove(up, row)) == set(row.named)


@rows(on_a_stack=False, is_quick=True)
def test_a_deviation_of_up_is_named_and_what_was_made_is_destroyed(proof: Proof, row: Row) -> None:
    proof.azure.deviate(row.deviation)
    assert proof.prove("--only", *row.steps) == 1
    assert set(proof.denied()) == set(row.named)
    assert proof.azure.live() == set()


@pytest.mark.faults
@rows(on_a_stack=True, is_quick=False)
def test_a_slower_deviation_on_a_stack_is_named(up: Proof, row: Row) -> None:
    assert set(prove(up, row)) == set(row.named)


@pytest.mark.faults
@rows(on_a_stack=False, is_quick=False)
def test_a_slower_deviation_of_up_is_named(proof: Proof, row: Row) -> None:
    assert set(prove(proof, row)) == set(row.named)


def test_no_step_begins_that_could_pass_the_limit_and_the_stack_goes(up: Proof) -> None:
    code = up.prove("--only", "hello", "--limit", "0.01")
    assert code == 1
    assert "hello" not in up.steps()
    assert up.azure.live() == set()
