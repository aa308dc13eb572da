"""MultiWorkerMirrored's collectives train as Horovod does, on loopback only, and go on from its checkpoint."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from jobs.contracts.spec import RunState
from jobs.host.processes import read_table
from jobs.runs.checkpoints import whole_checkpoints
from tests.busy import Bound
from tests.fakes.gangs import Gangs
from tests.fakes.sockets import listeners
from tests.fakes.torch_ranks import Zygote, start_gang

REPO = Path(__file__).parents[2]
TINY = "tests.integration.programs.tf_tiny"
MADE = ("--data", "synthetic", "--image-size", "32", "--num-images", "72", "--num-classes", "4")
RECIPE = ("--batch-per-rank", "4", "--epochs", "2", "--warmup-epochs", "0", "--lr", "3")
EVERY = ("--log-every", "1", "--checkpoint-every", "3", "--keep-last", "20")
ARGUMENTS = (*MADE, *RECIPE, *EVERY)
NUM_STEPS = 18
LIMIT_S = 400

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def by_horovod(tensorflow_zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training by the loop, on two ranks of Horovod."""
    folder = tmp_path_factory.mktemp("horovod") / "run"
    gang = start_gang(
        tensorflow_zygote,
        [TINY, "tf", "statistics", *ARGUMENTS],
        strategy="horovod",
        size=2,
        folder=folder,
        env={"TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    codes = gang.wait(LIMIT_S)
    gang.end()
    assert codes == [0, 0], gang.texts()
    return folder


def losses(run_dir: Path) -> dict[int, float]:
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return {
        line["step"]: line["value"]
        for line in lines
        if (line["split"], line["name"]) == ("train", "loss")
    }


def summary(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "summary.json").read_text())


def run(
    gangs: Gangs,
    framework: str,
    *more: str,
    ends: RunState = RunState.COMPLETED,
    env: dict[str, str] | None = None,
) -> Path:
    """Train on two workers; gives the run's folder. Whatever listens does so on loopback."""
    start = f"import sys; from {TINY} import main; sys.exit(main(sys.argv[1:]))"
    handle = gangs.submit(
        ["python", "-c", start, framework, "statistics", *ARGUMENTS, *more],
        launcher="tensorflow",
        processes_per_node=2,
        code=str(REPO),
        code_only=("trainer", "tests/integration/programs"),
        hang_s=240.0,
        env={"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2", **(env or {})},
    )
    bound, seen = Bound(LIMIT_S), set[int]()
    while not gangs.engine.store.status(handle).state.is_terminal():
        bound.check(gangs.texts(handle, 0))
        table = read_table()
        try:
            open_ports = listeners([pid for pid in gangs.processes(handle) if pid in table])
        except (FileNotFoundError, ProcessLookupError):  # one has ended meanwhile
            continue
        assert [each for each in open_ports if not each.is_loopback] == []
        seen |= {each.port for each in open_ports}
        time.sleep(0.2)
    status = gangs.wait(handle, 60)
    assert status.state is ends, (status, gangs.texts(handle, 0))
    assert len(seen) >= 2, "each worker listens"
    return Path(handle.run_dir)


def require_equal_ranks(told: dict[str, Any]) -> None:
    assert (told["strategy"], told["world_size"]) == ("mwms", 2)
    assert len(told["weights_sha256"]) == 2
    assert len(set(told["weights_sha256"])) == 1


@pytest.mark.faults
@pytest.mark.parametrize("framework", ["tf", "keras"])
def test_two_mirrored_workers_have_the_losses_of_two_ranks_of_horovod(
    by_horovod, tensorflow_gangs, framework
):
    """By the loop and by Keras's `fit`; the ranks of Horovod trained by the loop."""
    run_dir = run(tensorflow_gangs, framework)
    found, wanted = losses(run_dir), losses(by_horovod)
    assert sorted(found) == list(range(1, NUM_STEPS + 1))
    assert found == pytest.approx(wanted, rel=1e-4)
    require_equal_ranks(summary(run_dir))


def test_mirrored_workers_go_on_from_a_checkpoint(by_horovod, tensorflow_gangs, tmp_path):
    """The first half was of Horovod; the rest comes to the losses of two ranks of Horovod."""
    begun = tmp_path / "begun"
    (half,) = (by_horovod / "checkpoints").glob("step-000000009-*")
    shutil.copytree(half, begun / half.name)
    run_dir = run(tensorflow_gangs, "tf", "--checkpoint-dir", str(begun), "--strategy", "mwms")
    wanted = {step: loss for step, loss in losses(by_horovod).items() if step > 9}
    assert sorted(wanted) == list(range(10, NUM_STEPS + 1))
    assert losses(run_dir) == pytest.approx(wanted, rel=1e-4)
    told = summary(run_dir)
    assert told["resumed_from_step"] == 9
    require_equal_ranks(told)


def test_mirrored_workers_that_get_a_notice_leave_with_a_checkpoint(tensorflow_gangs):
    """TensorFlow's coordination service took SIGTERM for itself, and all ranks trained on."""
    few = ("--checkpoint-every", "100")
    run_dir = run(
        tensorflow_gangs, "tf", *few, ends=RunState.PREEMPTED, env={"WATCH_NOTICE": "1 8"}
    )
    # A step's sums say so, which are read one step late.
    assert [each.step in (9, 10) for each in whole_checkpoints(run_dir)] == [True]
