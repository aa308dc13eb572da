"""The wall-clock limit, preemption, and the cores that each rank may use."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from jobs.contracts.spec import Limits, RunHandle, RunState
from tests.busy import HANG_S, Bound, wait_until
from tests.fakes.gangs import Gangs, make_spec


def submit_limited(gangs: Gangs, program: str, wall_clock_s: float, **changes: object) -> RunHandle:
    spec = make_spec(["python", "-c", program], **changes)
    limited = {"limits": Limits(wall_clock_s=wall_clock_s, hang_s=600.0)}
    fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
    plan = gangs.engine.plan(type(spec)(**{**fields, **limited}))
    handle = gangs.engine.submit(plan, {})
    gangs.handles.append(handle)
    return handle


def wait_for_texts(gangs: Gangs, handle: RunHandle, texts: list[str]) -> None:
    def are_said() -> bool:
        assert not gangs.engine.store.status(handle).state.is_terminal()
        return gangs.texts(handle, 0) + gangs.texts(handle, 1) == texts

    wait_until(are_said, HANG_S)


def test_run_longer_than_its_wall_clock_limit_is_ended_and_says_so(gangs: Gangs) -> None:
    program = "import itertools, time\nfor n in itertools.count(): print(n); time.sleep(0.05)"
    handle = submit_limited(gangs, program, 1.0)
    status = gangs.wait(handle)
    gangs.wait_until_gone(handle)
    assert (status.state, status.exit_code) == (RunState.FAILED, 124)
    assert status.reason == "limits.wall_clock: it ran longer than 1 s"


def test_rank_that_ignores_sigterm_is_ended_nonetheless(gangs: Gangs) -> None:
    program = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf')\ntime.sleep(3600)"
    )
    handle = gangs.python(program)
    wait_for_texts(gangs, handle, ["deaf", "deaf"])
    bound = Bound(20)
    gangs.engine.cancel(handle)
    assert gangs.wait(handle).state is RunState.CANCELLED
    gangs.wait_until_gone(handle)
    bound.check()


def test_preempted_supervisor_lets_the_ranks_checkpoint(gangs: Gangs) -> None:
    program = """
import pathlib, os, signal, sys, time
def leave(*_):
    pathlib.Path(os.environ["TRAINYARD_CHECKPOINT_DIR"], os.environ["RANK"]).touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, leave)
print("ready")
time.sleep(3600)
"""
    handle = gangs.python(program)
    wait_for_texts(gangs, handle, ["ready", "ready"])
    for pid in gangs.supervisors(handle)[:1]:
        os.kill(pid, signal.SIGTERM)
    status = gangs.wait(handle)
    assert (status.state, status.exit_code) == (RunState.PREEMPTED, 75)
    left = Path(handle.run_dir, "checkpoints").iterdir()
    assert sorted(each.name for each in left) == ["0", "1"]


def test_ranks_are_bound_to_cores_of_their_own(gangs: Gangs) -> None:
    program = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    handle = gangs.python(program)
    assert gangs.wait(handle).state is RunState.COMPLETED
    allowed = sorted(os.sched_getaffinity(0))
    half = len(allowed) // 2
    shares = [allowed[:half], allowed[half:]] if half else [allowed, allowed]
    texts = [gangs.texts(handle, rank) for rank in (0, 1)]
    assert texts == [[f"{share} {len(share)}"] for share in shares]
