"""A gang's processes: how ranks are started, who is told what and when, and what is known of an end."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.engines.local.containers import Containers
from jobs.engines.local.gang import LAST_WORDS_S, Gang
from jobs.engines.local.launchers import GangRequest, gang_request
from jobs.engines.local.rendezvous import Rendezvous
from jobs.rank.flight import WRITING_S
from jobs.runs.failure import RankReport
from tests.fakes import gang_machine
from tests.fakes.gang_machine import COMMAND, HELPER, MAIN, OWN, GangMachine
from tests.fakes.gangs import make_cluster, make_spec

GRACE_S = 4.0


def rendezvous(helper: int | None = None) -> Rendezvous:
    made = SimpleNamespace(helper=helper, of_rank=lambda rank: {"PORT": str(7000 + rank)})
    return cast(Rendezvous, made)


def request(**changes: Any) -> GangRequest:
    return gang_request(make_spec(["train"], **changes), make_cluster())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GangMachine:
    return GangMachine(monkeypatch, tmp_path / "run")


def start(machine: GangMachine, *, helper: int | None = None, **changes: Any) -> Gang:
    if helper is not None:
        machine.add(helper, OWN)
    gang = Gang(machine.run_dir, request(**changes), wait=machine.wait)
    gang.start("/image/bin/python", {"A": "1"}, rendezvous(helper))
    return gang


# --- starting and reaping --------------------------------------------------------------------


def test_each_rank_is_started_with_what_all_have_its_own_and_its_port(machine: GangMachine) -> None:
    gang = start(machine, launcher="torch")
    argv = ["/image/bin/python", "-I", "-S", "rank.pyz", "rank.json"]
    assert [words for words, _ in machine.started] == [argv, argv]
    names = ("A", "RANK", "WORLD_SIZE", "LOCAL_RANK", "PORT")
    assert [[env[name] for name in names] for _, env in machine.started] == [
        ["1", "0", "2", "0", "7000"],
        ["1", "1", "2", "1", "7001"],
    ]
    assert gang.are_living


def test_one_mpirun_beside_the_image_s_interpreter_starts_all_ranks(machine: GangMachine) -> None:
    start(machine, launcher="mpi")
    ((argv, env),) = machine.started
    assert (argv[0], env) == ("/image/bin/mpirun", {"A": "1"})
    assert argv[-5:] == ["/image/bin/python", "-I", "-S", "rank.pyz", "rank.json"]


class RecordingContainers:
    """Starts nothing, and notes what it would have."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str]] = []
        self.num_removed = 0

    def start(self, name: str, argv: list[str], env: Mapping[str, str]) -> int:
        self.started.append((name, env["RANK"]))
        return MAIN + int(name)

    def remove(self) -> None:
        self.num_removed += 1


def test_ranks_of_a_registrys_image_are_containers_that_are_removed_in_the_end(
    machine: GangMachine,
) -> None:
    containers = RecordingContainers()
    gang = Gang(
        machine.run_dir, request(), wait=machine.wait, containers=cast(Containers, containers)
    )
    gang.start("python", {}, rendezvous())
    assert (machine.started, containers.started) == ([], [("0", "0"), ("1", "1")])
    gang.clean_up()
    assert containers.num_removed == 1


def test_run_is_over_when_those_that_it_waits_for_are(machine: GangMachine) -> None:
    gang = start(machine, launcher="tensorflow", parameter_servers=2)
    living: list[bool] = []
    for rank in (2, 0, 1):  # of which the first is a server
        machine.end(MAIN + rank, 0)
        gang.reap()
        living.append(gang.are_living)
    assert (living, gang.has_failure) == ([True, True, False], False)


def test_orphan_of_a_rank_is_reaped_and_says_nothing(machine: GangMachine) -> None:
    gang = start(machine)
    machine.add(900, OWN)
    machine.end(900, signal.SIGKILL)
    gang.reap()
    assert (gang.are_living, gang.has_failure, gang.is_helper_lost) == (True, False, False)


def test_helper_that_ends_by_itself_is_a_loss(machine: GangMachine) -> None:
    gang = start(machine, launcher="torch", helper=HELPER)
    machine.end(HELPER, 1 << 8)
    gang.reap()
    assert (gang.is_helper_lost, gang.has_failure) == (True, False)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, {"exit_code": 0}),
        (3 << 8, {"exit_code": 3}),
        (signal.SIGKILL, {"signal": 9}),
    ],
)
def test_rank_that_could_not_record_its_end_has_that_of_its_process(
    machine: GangMachine, status: int, expected: dict[str, int]
) -> None:
    gang = start(machine)
    machine.record(1, pid=MAIN + 1, node=0)
    machine.clock.sleep(5.0)
    machine.end(MAIN + 1, status)
    gang.reap()
    now_s = machine.clock.now_s
    end = {**expected, "exited_s": now_s, "ended_s": now_s}
    assert gang.reports() == [
        RankReport(rank=0, node=0),
        RankReport(rank=1, node=0, host="h", pid=MAIN + 1, **end),
    ]
    assert gang.has_failure == (status != 0)


def test_rank_that_recorded_its_end_is_believed(machine: GangMachine) -> None:
    gang = start(machine)
    machine.record(0, exit_code=75, ended_s=8.0)
    machine.end(MAIN, signal.SIGKILL)
    gang.reap()
    assert gang.reports()[0] == RankReport(rank=0, host="h", exit_code=75, ended_s=8.0)


@pytest.mark.parametrize("content", ["", "[", "{}", '{"rank": "x"}', '{"rank": 0, "signal": 99}'])
def test_record_that_a_program_spoilt_is_none(machine: GangMachine, content: str) -> None:
    gang = start(machine)
    (machine.run_dir / "ranks" / "00000.json").write_text(content)
    assert gang.reports()[0] == RankReport(rank=0)


def test_end_of_mpirun_is_no_rank_s(machine: GangMachine) -> None:
    gang = start(machine, launcher="mpi")
    machine.end(MAIN, 1 << 8)
    gang.reap()
    assert (gang.has_failure, gang.are_living) == (True, False)
    assert gang.reports() == [RankReport(rank=0), RankReport(rank=1)]


# --- asking them to end ----------------------------------------------------------------------


def test_peers_are_told_at_once_and_waited_for_no_longer_than_they_take(
    machine: GangMachine,
) -> None:
    """A stopped process would never read SIGTERM, so SIGCONT follows."""
    gang = start(machine, processes_per_node=3)
    machine.command(0, term_s=1.0)
    machine.command(1, term_s=2.0)
    machine.end(MAIN + 2, 1 << 8)
    gang.stop(GRACE_S)
    assert machine.told == [
        (0.0, "SIGTERM", MAIN),
        (0.0, "SIGCONT", MAIN),
        (0.0, "SIGTERM", MAIN + 1),
        (0.0, "SIGCONT", MAIN + 1),
    ]
    assert machine.clock.passed_s == 2.0 + gang_machine.LAST_WORDS_S
    assert (gang.are_living, set(machine.table)) == (False, {OWN})


def test_deaf_command_is_killed_after_the_grace_before_the_one_that_records_its_end(
    machine: GangMachine,
) -> None:
    gang = start(machine)
    machine.command(0, term_s=1.0)
    machine.command(1)
    gang.stop(GRACE_S)
    assert machine.told[4:] == [(GRACE_S, "SIGKILL", COMMAND + 1)]
    assert machine.clock.passed_s == GRACE_S + gang_machine.LAST_WORDS_S
    assert set(machine.table) == {OWN}


def test_rank_without_last_words_is_killed_too(machine: GangMachine) -> None:
    gang = start(machine, processes_per_node=1)
    gang.stop(GRACE_S)
    assert machine.told == [
        (0.0, "SIGTERM", MAIN),
        (0.0, "SIGCONT", MAIN),
        (GRACE_S + LAST_WORDS_S, "SIGKILL", MAIN),
    ]
    assert gang.reports()[0].signal == signal.SIGKILL


def test_helper_lives_until_the_ranks_are_over_and_its_end_then_is_no_loss(
    machine: GangMachine,
) -> None:
    gang = start(machine, launcher="torch", helper=HELPER, processes_per_node=1)
    machine.command(0)
    gang.stop(GRACE_S)
    assert machine.told[2:] == [
        (GRACE_S, "SIGKILL", COMMAND),
        (GRACE_S + gang_machine.LAST_WORDS_S, "SIGKILL", HELPER),
    ]
    assert not gang.is_helper_lost


def test_daemon_of_a_run_that_is_over_is_killed(machine: GangMachine) -> None:
    gang = start(machine, processes_per_node=1)
    machine.add(900, MAIN)
    machine.end(MAIN, 0)
    gang.stop(GRACE_S)
    assert machine.told == [(0.0, "SIGKILL", 900)]


def test_mpirun_is_not_told_where_its_ranks_are_known(machine: GangMachine) -> None:
    """It would pass the signal on, but kill them within seconds of that."""
    gang = start(machine, launcher="mpi", processes_per_node=1)
    machine.add(MAIN + 50, MAIN)
    machine.command(0, main=MAIN + 50)
    gang.stop(GRACE_S)
    assert machine.told[:2] == [(0.0, "SIGTERM", MAIN + 50), (0.0, "SIGCONT", MAIN + 50)]


@pytest.mark.parametrize("pid", [0, 1, 77])
def test_mpirun_is_told_where_records_name_nobody_of_the_run(
    machine: GangMachine, pid: int
) -> None:
    gang = start(machine, launcher="mpi", processes_per_node=1)
    machine.add(77, 1)  # a stranger
    machine.record(0, pid=pid, child=pid)
    gang.stop(GRACE_S)
    assert [whom for _, number, whom in machine.told if number == "SIGTERM"] == [MAIN]


# --- having them show where they stand -------------------------------------------------------


def test_all_are_stopped_before_the_first_is_aborted(machine: GangMachine) -> None:
    gang = start(machine)
    for rank in (0, 1):
        machine.command(rank, abort_s=0.5)
    gang.abort(2.0)
    groups = [-COMMAND, -COMMAND - 1]
    assert machine.told == [
        *((0.0, name, group) for name in ("SIGSTOP", "SIGABRT", "SIGCONT") for group in groups),
        (0.0, "SIGCONT", MAIN),
        (0.0, "SIGCONT", MAIN + 1),
    ]
    assert machine.clock.passed_s == 0.5 + gang_machine.LAST_WORDS_S


def test_rank_that_is_over_or_that_names_a_stranger_is_not_aborted(machine: GangMachine) -> None:
    gang = start(machine, processes_per_node=4)
    machine.command(0, exit_code=0, ended_s=1.0)
    machine.add(77, 1)
    machine.record(1, pid=1, child=77)
    machine.record(2, pid=MAIN + 2, child=MAIN + 2)  # which leads no group of its own
    machine.command(3, abort_s=0.0)
    gang.abort(2.0)
    assert [whom for _, number, whom in machine.told if number == "SIGABRT"] == [-COMMAND - 3]
    continued = [whom for _, number, whom in machine.told if number == "SIGCONT"]
    assert continued == [-COMMAND - 3, MAIN + 2, MAIN + 3]
    assert 77 in machine.table


@pytest.mark.parametrize(("is_heard", "aborted_s"), [(True, WRITING_S), (False, 0.0)])
def test_flight_records_have_time_where_a_rank_listens(
    machine: GangMachine, monkeypatch: pytest.MonkeyPatch, is_heard: bool, aborted_s: float
) -> None:
    asked: list[tuple[str, list[int]]] = []

    def ask(run_dir: str, ranks: list[int]) -> bool:
        asked.append((run_dir, ranks))
        return is_heard

    monkeypatch.setattr("jobs.engines.local.gang.ask_for_records", ask)
    gang = start(machine)
    machine.command(0, exit_code=0, ended_s=1.0)
    machine.command(1, abort_s=0.0)
    gang.abort(2.0)
    assert asked == [(str(machine.run_dir), [1])]
    assert (aborted_s, "SIGABRT", -COMMAND - 1) in machine.told


def test_rank_that_ignores_its_end_is_killed_after_the_time_for_stacks(
    machine: GangMachine,
) -> None:
    gang = start(machine, processes_per_node=1)
    machine.command(0)
    gang.abort(2.0)
    assert machine.told[-1] == (2.0, "SIGKILL", COMMAND)
    assert set(machine.table) == {OWN}
