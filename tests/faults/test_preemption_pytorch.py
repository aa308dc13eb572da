"""F3: PyTorch ranks that are asked to leave write a checkpoint first, and all of them leave with 75.

Asked by SIGTERM to one rank or to the supervisor, or by Azure's Scheduled Events.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jobs.contracts.spec import RunState
from jobs.images.runtimes import PROJECT, runtime_python
from tests import seeds
from tests.busy import Bound, wait_until
from tests.campaign import campaign
from tests.fakes.gangs import Gangs
from tests.fakes.torch_ranks import Gang, Zygote
from tests.faults.torch_campaign import (
    checkpoints,
    index_errors,
    make_pictures,
    mnist,
    newest,
    read_index,
    tiny,
)

REPO = Path(__file__).parents[2]
LEAVE_S = 10.0
RUN_S = 120.0
PREEMPTED = 75


def wait_for_step(gang: Gang, folder: Path, step: int) -> None:
    """Wait until a rank has logged this step."""
    bound = Bound(RUN_S)
    index = folder / "index"
    while not index.exists() or not any(at >= step for at, _ in read_index(folder).rows):
        bound.check(gang.texts)
        assert gang.codes() == [None, None], gang.texts()
        time.sleep(0.002)


def left_errors(folder: Path, codes: list[int | None], texts: list[str], asked: str) -> list[str]:
    """What was not as promised when the ranks left: the codes, what is kept, what they said."""
    errors: list[str] = []
    if codes != [PREEMPTED, PREEMPTED]:
        errors.append(f"left with {codes}: {texts}")
    last = {
        rank: max(step for step, each in read_index(folder).rows if each == rank) for rank in (0, 1)
    }
    kept = max(checkpoints(folder), default=0)
    if set(last.values()) != {kept}:
        errors.append(f"the checkpoint is of step {kept}, the last steps were {last}")
    said = f"; checkpoint of step {kept} is kept"
    if not all(said in text for text in texts) or not any(asked + said in text for text in texts):
        errors.append(f"said {texts}")
    return errors


class TestSigterm:
    """One rank gets it, at any moment after the first step."""

    def test_all_ranks_leave_with_a_checkpoint(self, zygote, tmp_path):
        self.leave(zygote, tmp_path, 1)

    @pytest.mark.faults
    @pytest.mark.timeout(1800)
    def test_all_ranks_leave_with_a_checkpoint_twenty_times(self, zygote, tmp_path):
        self.leave(zygote, tmp_path, 20)

    def leave(self, zygote: Zygote, tmp_path: Path, times: int) -> None:
        chance = seeds.dice(times)
        program = tiny(12, checkpoint_every=40)
        references: dict[str, Path] = {}
        survived, errors = 0, []
        for number in range(times):
            strategy = ("ddp", "horovod")[number % 2]
            if strategy not in references:
                references[strategy] = tmp_path / f"whole-{strategy}"
                gang = program.start(zygote, references[strategy], strategy)
                assert gang.wait(RUN_S) == [0, 0], gang.texts()
                gang.end()
            reference = references[strategy]
            folder = tmp_path / str(number)
            gang = program.start(zygote, folder, strategy)
            wait_for_step(gang, folder, chance.randint(1, 250))
            gang.send(chance.randint(0, 1), signal.SIGTERM)
            codes = gang.wait(LEAVE_S)
            gang.end()
            found = left_errors(folder, codes, gang.texts(), "SIGTERM")
            if not found:
                gang = program.start(zygote, folder, strategy, attempt=1)
                if gang.wait(RUN_S) != [0, 0]:
                    found.append(f"did not resume: {gang.texts()}")
                gang.end()
                index, whole = read_index(folder), read_index(reference)
                found += index_errors(index, whole, program.steps_per_epoch)
                if index.most_lost or newest(folder) != newest(reference):
                    found.append(f"{index.most_lost} steps lost, or another end")
            survived += not found
            errors += found
        campaign(
            "F3 PyTorch: SIGTERM to one rank, checkpoint within 10 s, all exit 75, no step lost",
            tried=times,
            survived=survived,
        )
        assert errors == []

    @pytest.mark.parametrize("strategy", [pytest.param("ddp", marks=pytest.mark.faults), "horovod"])
    def test_before_the_first_step_it_is_heeded_after_it(self, zygote, tmp_path, strategy):
        program = tiny(4000)
        gang = program.start(zygote, tmp_path, strategy)
        wait_until(lambda: handles_sigterm(gang.pids[1]), RUN_S, gang.texts)
        gang.send(1, signal.SIGTERM)
        gang.send(1, signal.SIGTERM)  # supervisors and mpirun both may send it
        codes = gang.wait(LEAVE_S)
        gang.end()
        assert left_errors(tmp_path, codes, gang.texts(), "SIGTERM") == []

    @pytest.mark.parametrize("strategy", ["ddp", pytest.param("horovod", marks=pytest.mark.faults)])
    def test_in_an_evaluation_it_is_not_waited_for(self, zygote, tmp_path, strategy):
        data = make_pictures(tmp_path / "pictures", num_train=30, num_test=20_000)
        program, folder, begun = mnist(data), tmp_path / "run", tmp_path / "begun"
        gang = program.start(zygote, folder, strategy, env={"WATCH_EVALUATION": str(begun)})
        wait_until(begun.exists, RUN_S, gang.texts)  # after step 5
        gang.send(0, signal.SIGTERM)
        codes = gang.wait(LEAVE_S)
        gang.end()
        # Nothing was due at step 5: its checkpoint is there because a rank was asked to leave.
        assert left_errors(folder, codes, gang.texts(), "SIGTERM") == []
        assert "epoch 1/2" not in gang.texts()[0]


def handles_sigterm(pid: int) -> bool:
    """Whether the process has a handler for it already."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) & 1 << signal.SIGTERM - 1)


class ScheduledEvents:
    """Azure's metadata service on loopback; announces `Preempt` from the moment it is told to."""

    def __init__(self) -> None:
        self.is_announced = False
        self.refused = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_right = self.headers.get("Metadata", "").lower() == "true"
                service.refused += not is_right
                is_name = self.path.startswith("/metadata/instance/compute/name")
                text = "node_0" if is_name else json.dumps(service.document())
                body = text.encode() if is_right else b""
                self.send_response(200 if is_right else 400)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/metadata/scheduledevents"

    def document(self) -> dict[str, object]:
        when = datetime.now(UTC) + timedelta(seconds=30)
        event = {
            "EventId": "A123BC45-1234-5678-AB90-ABCDEF123456",
            "EventType": "Preempt",
            "ResourceType": "VirtualMachine",
            "Resources": ["node_0"],
            "EventStatus": "Scheduled",
            "NotBefore": format_datetime(when, usegmt=True),
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
        return {"DocumentIncarnation": 1, "Events": [event] if self.is_announced else []}

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[ScheduledEvents]:
    made = ScheduledEvents()
    yield made
    made.close()


class TestScheduledEvents:
    def test_all_ranks_leave_with_a_checkpoint(self, zygote, tmp_path, service):
        self.leave(zygote, tmp_path, service, 1)

    @pytest.mark.faults
    @pytest.mark.timeout(1800)
    def test_all_ranks_leave_with_a_checkpoint_twenty_times(self, zygote, tmp_path, service):
        self.leave(zygote, tmp_path, service, 20)

    def leave(self, zygote: Zygote, tmp_path: Path, service: ScheduledEvents, times: int) -> None:
        program = tiny(4000)
        errors: list[list[str]] = []
        for number in range(times):
            folder = tmp_path / str(number)
            strategy = ("ddp", "horovod")[number % 2]
            gang = program.start(zygote, folder, strategy, "--scheduled-events", service.url)
            wait_for_step(gang, folder, 3)
            service.is_announced = True
            codes = gang.wait(LEAVE_S)
            service.is_announced = False
            gang.end()
            errors.append(
                left_errors(folder, codes, gang.texts(), "Azure's scheduled event Preempt")
            )
        campaign(
            "F3 PyTorch: scheduled event Preempt, checkpoint within 10 s, all exit 75",
            tried=times,
            survived=sum(not each for each in errors),
        )
        assert errors == [[]] * times
        assert service.refused == 0


class TestSupervisor:
    """The local engine's own supervisor is asked to end, as when its machine goes down."""

    @pytest.fixture
    def gangs(self, zygote, tmp_path) -> Iterator[Gangs]:
        made = Gangs(tmp_path / "workspace", interpreter=runtime_python("pytorch", PROJECT))
        yield made
        made.end()

    def test_the_run_is_preempted_with_a_checkpoint(self, gangs, tmp_path):
        self.leave(gangs, tmp_path, 1)

    @pytest.mark.faults
    @pytest.mark.timeout(1800)
    def test_the_run_is_preempted_with_a_checkpoint_twenty_times(self, gangs, tmp_path):
        self.leave(gangs, tmp_path, 20)

    def leave(self, gangs: Gangs, tmp_path: Path, times: int) -> None:
        data = make_pictures(tmp_path / "pictures", num_train=600)
        errors: list[str] = []
        for number in range(times):
            strategy, launcher = (("horovod", "horovod"), ("ddp", "torch"))[number % 2]
            arguments = ["--data", str(data), "--epochs", "400", "--strategy", strategy]
            handle = gangs.submit(
                ["python", "-m", "trainer.pytorch.mnist", *arguments],
                launcher=launcher,
                code=str(REPO),
                code_only=("trainer",),
                env={"OMP_NUM_THREADS": "1"},
            )
            gangs.wait_for_file(handle, "metrics.jsonl", holding=b"train")
            for pid in gangs.supervisors(handle):
                os.kill(pid, signal.SIGTERM)
            bound = Bound(LEAVE_S)
            status = gangs.wait(handle, RUN_S)
            is_late = bound.is_passed()
            kept = max(checkpoints(Path(handle.run_dir)), default=None)
            said = f"; checkpoint of step {kept} is kept"
            texts = ["\n".join(gangs.texts(handle, rank)) for rank in (0, 1)]
            is_right = (status.state, status.exit_code) == (RunState.PREEMPTED, PREEMPTED)
            if not (is_right and not is_late and all(said in text for text in texts)):
                errors.append(f"{status}{' too late' * is_late}: {texts}")
        campaign(
            "F3 PyTorch: SIGTERM to the supervisor, checkpoint within 10 s, run preempted",
            tried=times,
            survived=times - len(errors),
        )
        assert errors == []
