"""PyTorch ranks as one: equal gradients at any world size, resume at another one, and ways to meet."""

from __future__ import annotations

import json
import math
import socket
from pathlib import Path

import numpy as np
import pytest

from tests.fakes.torch_ranks import Strategy, Zygote, start_gang
from tests.faults.torch_campaign import (
    Program,
    checkpoints,
    make_pictures,
    mnist,
    tiny,
)
from tests.ports import free_port

GRADIENTS = "tests.integration.programs.gradients_torch"
MNIST = "trainer.pytorch.mnist"
MEETING = "tests.integration.programs.meeting_ranks"
RUN_S = 120.0
GANGS = tuple((strategy, size) for strategy in ("ddp", "horovod") for size in (1, 2, 4))
NO_DROPOUT = {"WATCH_NO_DROPOUT": "1"}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    return make_pictures(tmp_path_factory.mktemp("data") / "pictures")


@pytest.mark.parametrize(
    "gangs",
    [
        pytest.param((("ddp", 4), ("horovod", 2)), id="some"),
        pytest.param(GANGS, id="all", marks=pytest.mark.faults),
    ],
)
def test_gradients_and_loss_are_equal_at_any_world_size(zygote, tmp_path, gangs):
    def of(strategy: Strategy, size: int) -> tuple[float, np.ndarray]:
        folder = tmp_path / f"{strategy}-{size}"
        gang = start_gang(zygote, [GRADIENTS], strategy=strategy, size=size, folder=folder)
        codes = gang.wait(RUN_S)
        gang.end()
        assert codes == [0] * size, gang.texts()
        return json.loads((folder / "loss.json").read_text()), np.load(folder / "gradients.npy")

    loss, gradients = of("single", 1)
    scale = np.linalg.norm(gradients)
    for strategy, size in gangs:
        other_loss, others = of(strategy, size)
        assert other_loss == pytest.approx(loss, rel=1e-6), (strategy, size)
        assert np.linalg.norm(others - gradients) < 1e-6 * scale, (strategy, size)


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = [line for line in lines if (line["split"], line["name"]) == ("train", "loss")]
    assert [line["step"] for line in found] == list(range(1, len(found) + 1))
    return [line["value"] for line in found]


class TestAnotherWorldSize:
    def run(
        self, zygote: Zygote, program: Program, folder: Path, size: int, *more: str
    ) -> tuple[list[int | None], list[str]]:
        """One attempt, without dropout; DDP, or alone."""
        strategy = "single" if size == 1 else "ddp"
        gang = program.start(zygote, folder, strategy, *more, size=size, env=NO_DROPOUT)
        codes = gang.wait(RUN_S)
        gang.end()
        return codes, gang.texts()

    def test_the_training_goes_on_as_if_nothing_had_happened(self, zygote, pictures, tmp_path):
        program, every = mnist(pictures), ("--log-every", "1")
        for sizes in ((1, 1), (2, 1), (1, 2)):
            for epochs, size in zip(("1", "2"), sizes, strict=True):
                folder = tmp_path / str(sizes)
                codes, texts = self.run(
                    zygote,
                    program,
                    folder,
                    size,
                    *every,
                    "--epochs",
                    epochs,
                    "--checkpoint-every",
                    "5",
                )
                assert codes == [0] * size, texts
            was, now = sizes
            said = "" if was == now else f"; world size {was} there, {now} now"
            assert "resumed at step 10 from step-000000010-" in texts[0]
            assert f"{said}\n" in texts[0]
        expected = losses(tmp_path / "(1, 1)")
        assert len(expected) == 20
        for sizes in ("(2, 1)", "(1, 2)"):
            assert losses(tmp_path / sizes) == pytest.approx(expected, rel=1e-3)

    def test_batch_statistics_become_their_mean(self, zygote, tmp_path):
        program = tiny(2)
        for epochs, size in (("1", 2), ("2", 1)):
            more = ("--epochs", epochs, "--checkpoint-every", "5")
            codes, texts = self.run(zygote, program, tmp_path, size, *more)
            assert codes == [0] * size, texts
        assert "world size 2 there, 1 now" in texts[0]
        summary = json.loads((tmp_path / "summary.json").read_text())
        assert summary["resumed_from_step"] == 25
        assert summary["losses"]
        assert all(math.isfinite(loss) and loss < 1.2 for loss in summary["losses"])

    def test_another_batch_is_refused_on_all_ranks(self, zygote, pictures, tmp_path):
        program = mnist(pictures)
        assert self.run(zygote, program, tmp_path, 1, "--epochs", "1")[0] == [0]
        kept = checkpoints(tmp_path)
        codes, texts = self.run(zygote, program, tmp_path, 2, "--batch-size", "7")
        assert codes == [1, 1]
        assert "is of another training: batch_size 6 there, 7 now (hint: " in texts[0]
        assert "error: rank 0 refused the checkpoint; its message says why" in texts[1]
        assert checkpoints(tmp_path) == kept


class TestMeeting:
    """Source 001's four arguments, as Batch AI filled them in: no launcher, no variables."""

    @pytest.mark.parametrize("scheme", ["tcp", "file"])
    def test_ranks_meet_where_the_command_line_says(self, zygote, pictures, tmp_path, scheme):
        url = f"tcp://127.0.0.1:{free_port()}" if scheme == "tcp" else f"file://{tmp_path}/init"
        argv = [MNIST, "--data", str(pictures), "--epochs", "1", "--batch-size", "6"]
        argv += ["--world-size", "2", "--dist-backend", "gloo", "--dist-url", url]
        logs = [tmp_path / f"rank-{rank}.log" for rank in (0, 1)]
        env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        pids = [
            zygote.fork([*argv, "--rank", str(rank)], env=env, cwd=tmp_path, log=log)
            for rank, log in enumerate(logs)
        ]
        assert zygote.wait(pids, RUN_S), [log.read_text() for log in logs]
        assert [zygote.code(pid) for pid in pids] == [0, 0], [log.read_text() for log in logs]
        summary = json.loads((tmp_path / "outputs" / "summary.json").read_text())
        assert (summary["strategy"], summary["world_size"]) == ("ddp", 2)
        assert len(set(summary["weights_sha256"])) == 1

    @pytest.mark.parametrize("way", ["torchrun", "variables", "tcp", "file"])
    def test_ranks_on_two_kinds_of_device_are_told_before_they_wait(self, zygote, tmp_path, way):
        """One over Gloo and one over NCCL would wait for each other until the timeout."""
        port = free_port()
        urls = {"tcp": f"tcp://127.0.0.1:{port}", "file": f"file://{tmp_path}/init"}
        env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": "2"}
        env |= {"TORCHELASTIC_USE_AGENT_STORE": str(way == "torchrun")}
        if way not in urls:
            env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        url = [urls[way]] if way in urls else []
        logs = [tmp_path / f"rank-{rank}.log" for rank in (0, 1)]
        pids = [
            zygote.fork([MEETING, kind, *url], env={**env, "RANK": rank}, cwd=tmp_path, log=log)
            for rank, kind, log in zip("01", ("cpu", "cuda"), logs, strict=True)
        ]
        assert zygote.wait(pids, RUN_S), [log.read_text() for log in logs]
        assert [zygote.code(pid) for pid in pids] == [1, 1]
        said = "rank 1 computes on the GPU, rank 0 on the CPU (hint: "
        assert [log.read_text().splitlines()[-1][: len(said)] for log in logs] == [said] * 2

    @pytest.mark.parametrize(
        ("gpus", "backend", "environ", "refused"),
        [
            ("aa", "gloo", {}, "ranks 0 and 1 would share GPU a of "),
            ("aa", "gloo", {"CUDA_VISIBLE_DEVICES": "0"}, None),
            ("aa", "nccl", {"CUDA_VISIBLE_DEVICES": "0"}, "ranks 0 and 1 share GPU a of "),
            ("ab", "gloo", {}, None),
        ],
    )
    def test_ranks_that_were_started_one_by_one_share_no_gpu_unless_told(
        self, zygote, tmp_path, gpus, backend, environ, refused
    ):
        """Each is alone on its machine by its arguments, and takes the first GPU."""
        env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **environ}
        url = f"tcp://127.0.0.1:{free_port()}"
        logs = [tmp_path / f"rank-{rank}.log" for rank in (0, 1)]
        pids = [
            zygote.fork(
                [MEETING, "cuda", url, str(rank), "2", gpu, backend], env=env, cwd=tmp_path, log=log
            )
            for (rank, gpu), log in zip(enumerate(gpus), logs, strict=True)
        ]
        assert zygote.wait(pids, RUN_S), [log.read_text() for log in logs]
        said = [line for log in logs for line in log.read_text().splitlines()]
        assert [line.partition(socket.gethostname())[0] for line in said if "rank" in line] == (
            [refused] * 2 if refused else []
        )
        assert [zygote.code(pid) for pid in pids] == [int(bool(refused))] * 2, said

    @pytest.mark.parametrize("way", ["torchrun", "file"])
    def test_a_store_of_an_earlier_start_serves_again_and_a_file_is_told(
        self, zygote, tmp_path, way
    ):
        port = free_port()
        url = "env://" if way == "torchrun" else f"file://{tmp_path}/init"
        env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "START_TIMES": "2"}
        if way == "torchrun":
            env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            env |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}
        code, said = self.meet_alone(zygote, tmp_path, url, env)
        told = f"rank 0 cannot meet the others at {url}: an earlier run left it (hint: "
        assert (code, told in said) == ((0, False) if way == "torchrun" else (1, True)), said

    @pytest.mark.parametrize(
        ("said_by_it", "why"),
        [
            (
                "NCCL error in: NCCLUtils.cpp:94\nLast error:\nno GPUDirect here",
                "no GPUDirect here",
            ),
            ("no GPUDirect here\nLast error:\n \n", "no GPUDirect here"),
            ("Last error:\n", "it does not say why"),
        ],
    )
    def test_a_backend_that_fails_is_no_meeting_that_failed(
        self, zygote, tmp_path, said_by_it, why
    ):
        env = {"BACKEND_SAYS": said_by_it}
        url = f"file://{tmp_path}/init"
        code, said = self.meet_alone(zygote, tmp_path, url, env)
        told = f"rank 0 met the others, but gloo failed: {why} (hint: "
        assert (code, told in said) == (1, True), said

    def test_a_rank_that_nobody_comes_to_in_time_says_so(self, zygote, tmp_path):
        url = f"file://{tmp_path}/init"
        code, said = self.meet_alone(zygote, tmp_path, url, {"MEETING_S": "1"}, size=2)
        assert (code, "rank 0 did not meet the others: " in said) == (1, True), said
        assert "Traceback" not in said

    def meet_alone(
        self, zygote: Zygote, folder: Path, url: str, env: dict[str, str], *, size: int = 1
    ) -> tuple[int | None, str]:
        """Start one rank of a group; gives its exit code and what it said."""
        log = folder / "rank-0.log"
        pid = zygote.fork(
            [MEETING, "cuda", url, "0", str(size), "a", "gloo"], env=env, cwd=folder, log=log
        )
        assert zygote.wait([pid], RUN_S), log.read_text()
        return zygote.code(pid), log.read_text()
