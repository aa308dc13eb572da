"""Following a run: what is said while it waits, and how its lines are written."""

from types import SimpleNamespace

import msgspec
import pytest

from jobs.contracts.spec import LogLine, RunHandle, RunState, RunStatus
from jobs.launching import follow as following
from jobs.launching.follow import follow, see_through, wait_until_over, write_lines
from tests.fakes.gangs import make_spec

HANDLE = RunHandle(id="r", engine="local", run_dir="/r")


class ScriptedEngine:
    """Goes through a list of (state, reason), one a look."""

    def __init__(self, *states):
        self.states = list(states)
        self.store = self

    def status(self, handle):
        state, reason = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return RunStatus(
            id=handle.id,
            name="j",
            state=RunState(state),
            reason=reason,
            exit_code=None,
            stack="local",
            cluster="cpu",
            nodes=1,
            world_size=10,
            created="",
            started=None,
            ended=None,
            run_dir="/r",
        )

    def record(self, _):
        spec = make_spec(["python"], processes_per_node=10, parameter_servers=2)
        return SimpleNamespace(plan=SimpleNamespace(spec=spec))

    def logs(self, handle, ranks, *, follow):
        assert follow
        yield LogLine(ts="t", rank=3, text="from three")
        yield LogLine(ts="t", rank=11, text="")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(following.time, "sleep", lambda _: None)


def test_a_queued_run_says_each_change_of_what_it_waits_for(capsys):
    engine = ScriptedEngine(
        ("queued", "2 runs before it"),
        ("queued", "2 runs before it"),
        ("queued", "1 run before it"),
        ("preparing", "fetching digits"),
        ("running", None),
        ("completed", None),
    )
    assert follow(engine, HANDLE).state is RunState.COMPLETED
    assert capsys.readouterr() == (
        "[ 3] from three\n[11] \n",
        "r queued: 2 runs before it\nr queued: 1 run before it\nr preparing: fetching digits\n",
    )


def test_waiting_gives_up_in_time_and_tells_how_it_stands(monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr(following.time, "monotonic", lambda: next(ticks))
    status = wait_until_over(ScriptedEngine(("running", "x")), HANDLE, timeout_s=5)
    assert msgspec.structs.asdict(status)["state"] is RunState.RUNNING


def test_ranks_have_colours_of_their_own_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("jobs.host.console.has_colour", lambda _: True)
    write_lines([LogLine(ts="t", rank=rank, text="x") for rank in (0, 1, 6)], 7)
    assert capsys.readouterr().out == (
        "\x1b[36m[0]\x1b[0m x\n\x1b[32m[1]\x1b[0m x\n\x1b[36m[6]\x1b[0m x\n"
    )


class AttendedEngine(ScriptedEngine):
    """Begins again so many times; its image's build says something while it is prepared."""

    def __init__(self, *states, times):
        super().__init__(*states)
        self.times = times
        self.read = []

    def check_quota(self, plan):
        pass

    def begin_again(self, handle):
        self.times -= 1
        return self.times >= 0

    def preparation(self, handle):
        yield from ()

    def preparation_news(self, handle):
        return ["Step 1"] if self.states[0][0] == "running" else []

    def logs(self, handle, ranks, *, follow, since="", tail=None):
        self.read.append((since, tail))
        yield LogLine(ts="t", rank=0, text="x")


def test_what_is_begun_again_is_followed_on_from_where_it_ended(capsys):
    states = [("preparing", None), ("running", None), ("preempted", None), ("running", None)]
    engine = AttendedEngine(*states, ("completed", None), times=1)
    assert follow(engine, HANDLE).state is RunState.COMPLETED
    assert engine.read == [("", None), (None, None)]
    assert capsys.readouterr() == ("[ 0] x\n[ 0] x\n", "Step 1\n")


def test_who_waits_begins_again_too():
    engine = AttendedEngine(("preempted", None), ("completed", None), times=1)
    assert see_through(engine, HANDLE).state is RunState.COMPLETED


@pytest.mark.parametrize(("is_terminal", "length"), [(True, 4075), (False, 10 << 20)])
def test_line_of_ten_megabytes_is_cut_on_a_terminal_alone(capsys, monkeypatch, is_terminal, length):
    monkeypatch.setattr("jobs.launching.follow.console.is_terminal", lambda _: is_terminal)
    write_lines([LogLine(ts="t", rank=0, text="x" * (10 << 20))], 1)
    shown = capsys.readouterr().out.removesuffix("\n").split(" ", 1)[1]
    assert shown.startswith("x" * 4000)
    assert len(shown) <= length
    assert shown.endswith("x" if not is_terminal else "files and pipes get all)")
