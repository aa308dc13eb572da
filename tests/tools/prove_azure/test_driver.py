"""How a proof goes through its steps: within its limit of money, and with nothing left in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes.turned_clock import TurnedClock
from tools.prove_azure import driver, stack_steps
from tools.prove_azure.cost import Prices
from tools.prove_azure.record import Record
from tools.prove_azure.session import deny
from tools.prove_azure.steps import Step

WORDS = "The value of query parameter underlyingResourceAction is missing."


class Scripted:
    """A session that notes what is done to its stack."""

    def __init__(self) -> None:
        self.stack, self.step = "dev-prove", ""
        self.record = Record(stack=self.stack, location="swedencentral")
        self.prices = Prices(node=0.3, idle=0.2)
        self.settings = {"name": "prove"}
        self.done: list[str] = []
        self.saved: list[float] = []

    def save(self) -> None:
        """See Session."""
        self.saved.append(round(self.record.spent, 6))

    def denies(self, unknown: str, words: str) -> None:
        """See Session."""
        self.record.denies(unknown, self.step, words)

    def denied(self) -> set[str]:
        return {name for name, each in self.record.verdicts.items() if not each.holds}


def noted(name: str) -> Callable[[Any], None]:
    """A step on a stack that only notes that it was taken."""

    def act(s: Any) -> None:
        s.done.append(name)
        if name in {"destroy", "delete_group"}:
            s.record.up_since_s = None

    return act


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("repair", "destroy", "delete_group", "purge"):
        monkeypatch.setattr(stack_steps, name, noted(name))
    return Scripted()


def come_up(s: Any) -> None:
    """Come up."""
    s.record.up_since_s = 1.0


def say_hello(s: Any) -> None:
    """Say hello."""
    s.done.append("hello")


def be_refused(_: Any) -> None:
    """Be refused by Azure."""
    deny(WORDS)


UP = Step("up", come_up, ("U1",), minutes=1, needs_stack=False)


def test_a_step_that_could_pass_the_limit_is_not_begun_and_the_stack_goes(session: Any) -> None:
    hello = Step("hello", say_hello, ("U25",), minutes=10, node_minutes=10)
    driver.prove(session, [UP, hello], limit=0.01, keep=False)
    assert list(session.record.steps) == ["up"]
    assert session.done == ["repair", "destroy", "purge"]
    assert session.record.up_since_s is None


def test_a_stack_is_brought_back_only_where_that_and_the_step_keep_the_limit(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = TurnedClock(monkeypatch, driver)

    def up(s: Any) -> None:
        come_up(s)
        clock.sleep(1800)

    monkeypatch.setattr(stack_steps, "up", up)
    hello = Step("hello", say_hello, ("U25",), minutes=6, node_minutes=12)
    driver.prove(session, [UP], limit=5.0, keep=False)
    session.done.clear()
    # An hour of the stack, 6 minutes of it, and 12 of nodes.
    driver.prove(session, [UP, hello], limit=0.27, keep=False)
    assert (list(session.record.steps), session.done) == (["up"], [])
    driver.prove(session, [UP, hello], limit=0.29, keep=False)
    assert session.done == ["purge", "hello", "repair", "destroy", "purge"]
    # What it has cost to come up again counts, too: half an hour of the stack alone.
    assert session.saved[-1] == 0.1


def test_what_a_step_has_cost_by_ctrl_c_is_written_down_of_a_stack_that_is_kept(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = TurnedClock(monkeypatch, driver)

    def be_cut_off(_: Any) -> None:
        clock.sleep(600)
        raise KeyboardInterrupt

    logs = Step("logs", be_cut_off, ("U26",), minutes=10, node_minutes=20)
    with pytest.raises(KeyboardInterrupt):
        driver.prove(session, [UP, logs], limit=5.0, keep=True)
    # Ten minutes of the stack, and of two nodes.
    assert session.saved[-1] == round(0.2 / 6 + 2 * 0.3 / 6, 6)


def test_words_of_azure_are_blamed_on_the_assumption_that_they_deny(session: Any) -> None:
    size = Step("size", be_refused, ("U25", "U6"), minutes=1)
    after = Step("after", say_hello, ("U25",), minutes=1, needs="size")
    last = Step("last", say_hello, ("U25",), minutes=1)
    driver.prove(session, [UP, size, after, last], limit=5.0, keep=True)
    ended = {name: each.outcome for name, each in session.record.steps.items()}
    assert ended == {"up": "done", "size": "failed", "after": "left out", "last": "done"}
    assert session.record.steps["size"].words == WORDS
    assert session.denied() == {"U6"}
    # It is kept, and what is done already is not done again.
    assert session.done == ["hello"]
    driver.prove(session, [UP, last], limit=5.0, keep=True)
    assert session.done == ["hello"]


def test_a_stack_that_cannot_be_destroyed_goes_with_its_group(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_steps, "destroy", be_refused)
    driver.prove(session, [UP], limit=5.0, keep=False)
    assert session.done == ["repair", "delete_group", "purge"]
    assert session.denied() == {"U6"}
