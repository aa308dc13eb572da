"""A store that refuses, hangs up, is slow or forgets: equal content in the end, or a clear error."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.blobs.store import BLOCK_BYTES
from tests import seeds
from tests.campaign import campaign
from tests.fakes.flaky_proxy import CutAnswer, CutRequest, Fault, Late, Plan, Refuse, Seen
from tests.faults.transfer_campaign import FlakyStore
from tests.folders import make_folder, read_folder

SEED = 7
SHARE = 0.2

KINDS: dict[str, Callable[[Seen, random.Random], Fault]] = {
    "answers 500": lambda seen, dice: Refuse(status=500, code="InternalError"),
    "answers 503": lambda seen, dice: Refuse(status=503, code="ServerBusy"),
    "answers 429": lambda seen, dice: Refuse(
        status=429, code="TooManyRequests", headers={"Retry-After": "1"}
    ),
    "hangs up in a request": lambda seen, dice: CutRequest(
        after_bytes=dice.randrange(seen.body_bytes + 1)
    ),
    "hangs up before its answer": lambda seen, dice: CutAnswer(after_bytes=None),
    "hangs up in its answer": lambda seen, dice: CutAnswer(after_bytes=dice.randrange(50)),
    "answers late": lambda seen, dice: Late(delay_s=dice.uniform(0.2, 1.0)),
}


def make_contents(num_files: int) -> dict[str, bytes]:
    """Many small files, an empty one, and one of two blocks and a bit."""
    files = {f"{number % 7}/{number:04}": seeds.content(3000) for number in range(num_files)}
    return {**files, "empty": b"", "large": seeds.content(2 * BLOCK_BYTES + 1)}


def sometimes(kinds: list[str], seed: int, met: list[str]) -> Plan:
    """Give a share of all requests a fault, drawn per request."""
    dice = seeds.dice(seed)
    lock = threading.Lock()

    def plan(seen: Seen) -> Fault | None:
        with lock:
            if dice.random() > SHARE:
                return None
            kind = dice.choice(kinds)
            met.append(kind)
            return KINDS[kind](seen, dice)

    return plan


def round_trip(
    store: FlakyStore, folder: Path, kinds: list[str], name: str, seed: int, num_files: int = 60
) -> tuple[int, int]:
    """Push and pull under faults; gives how many there were, and of how many no harm is left."""
    contents = make_contents(num_files)
    make_folder(folder / "from", contents)
    met: list[str] = []
    store.proxy.clear(sometimes(kinds, seed, met))
    store.succeed("push", str(folder / "from"), name)
    store.succeed("pull", name, "--to", str(folder / "to"))
    store.proxy.clear()
    is_equal = read_folder(folder / "to") == contents
    return len(met), len(met) if is_equal else 0


def test_a_round_trip_survives_all_that_a_store_may_do(store: FlakyStore, tmp_path: Path) -> None:
    count, survived = round_trip(store, tmp_path, list(KINDS), "mixed", SEED, num_files=30)
    campaign("requests that a store refused, cut or delayed", tried=count, survived=survived)
    assert survived == count > 10


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_round_trips_survive_each_of_it(store: FlakyStore, tmp_path: Path, kind: str) -> None:
    count = survived = 0
    for seed in range(5):
        folder = tmp_path / str(seed)
        name = f"{kind}-{seed}".replace(" ", "-")
        tried, harmless = round_trip(store, folder, [kind], name, seed)
        count, survived = count + tried, survived + harmless
    campaign(f"requests where the store {kind}", tried=count, survived=survived)
    assert survived == count > 50


def push_that_is_refused(store: FlakyStore, folder: Path, fault: Fault) -> str:
    """Give what a push says to a store that answers each file so."""
    make_folder(folder, {"a": b"1", "b": b"2"})
    store.proxy.clear(lambda seen: fault if seen.kind == "put" and "/" in seen.name else None)
    done = store.launch("push", str(folder), "refused")
    store.proxy.clear()
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
    assert list(store.open().list("_datasets/refused/")) == []
    return done.stderr


def test_a_refusal_is_named(store: FlakyStore, tmp_path: Path) -> None:
    refuse = Refuse(status=403, code="AuthorizationFailure")
    assert "refuses access: AuthorizationFailure" in push_that_is_refused(
        store, tmp_path / "from", refuse
    )


@pytest.mark.faults
def test_a_store_that_stays_busy_is_named_in_the_end(store: FlakyStore, tmp_path: Path) -> None:
    refuse = Refuse(status=503, code="ServerBusy")
    assert "answered 503: ServerBusy" in push_that_is_refused(store, tmp_path / "from", refuse)


def forget_in_the_middle(store: FlakyStore, folder: Path, number: int, when: int) -> str | None:
    """Kill Azurite at the `when`th request of a push, have it run again; says what went wrong."""
    contents = make_contents(60)
    make_folder(folder / "from", contents)
    requests = itertools.count()

    def plan(seen: Seen) -> None:
        if next(requests) == when:
            store.kill_azurite()
            threading.Timer(0.3, store.start_azurite).start()

    store.proxy.clear(plan)
    name = f"forgotten{number}"
    done = store.launch("push", str(folder / "from"), name)
    store.proxy.clear()
    store.start_azurite()
    if done.returncode != 0 and (
        done.returncode != 1 or "hint: " not in done.stderr or "Traceback" in done.stderr
    ):
        return f"no clear failure at request {when}: {done.returncode}: {done.stderr[-300:]}"
    # What came after the kill may have been acknowledged and forgotten as well.
    store.succeed("push", str(folder / "from"), name)
    pull = ("pull", name, "--to", str(folder / "to"))
    pulled = store.launch(*pull)
    if pulled.returncode != 0:
        # It forgot files that it had acknowledged, and kept the version that came after.
        if (
            pulled.returncode != 1
            or "hint: of a dataset, `launch data rm NAME@N`" not in pulled.stderr
        ):
            return f"no clear failure after a kill at request {when}: {pulled.stderr[-300:]}"
        store.succeed("rm", f"{name}@1", "--yes")
        store.succeed("push", str(folder / "from"), name)
        store.succeed(*pull)
    if read_folder(folder / "to") != contents:
        return f"other content after a kill at request {when}"
    return None


def run_forgetting(store: FlakyStore, folder: Path, moments: list[int]) -> None:
    faults = [
        fault
        for number, when in enumerate(moments)
        if (fault := forget_in_the_middle(store, folder / str(number), number, when))
    ]
    survived = len(moments) - len(faults)
    campaign("stores killed and started again in a push", tried=len(moments), survived=survived)
    assert faults == []


def test_a_store_that_forgets_is_sent_again_what_it_forgot(
    store: FlakyStore, tmp_path: Path
) -> None:
    run_forgetting(store, tmp_path, [40])


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_stores_that_forget_are_sent_again_what_they_forgot(
    store: FlakyStore, tmp_path: Path
) -> None:
    run_forgetting(store, tmp_path, [*range(0, 75, 3)])
