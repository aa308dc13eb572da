"""The check of bandwidth on ranks of this machine, over Gloo: its table, its files, a slow node."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from PIL import Image

from tests.busy import Bound
from tests.fakes.torch_ranks import Zygote
from tests.ports import free_port

MODULE = "trainer.pytorch.nccl_check"
WRONG_SUM = "tests.integration.programs.wrong_sum"
RUN_S = 400.0
LAST_SIZE = "1 MiB"


class Ranks:
    """Ranks of the check; each is a node of its own unless `per_node` says otherwise."""

    def __init__(
        self,
        zygote: Zygote,
        folder: Path,
        size: int,
        *,
        per_node: int = 1,
        repeats: int = 5,
        module: str = MODULE,
        backend: str = "gloo",
    ) -> None:
        port = free_port()
        self.folder = folder
        self._zygote = zygote
        self._pids = [
            zygote.fork(
                [module, "--max-mb", "1", "--repeats", str(repeats)],
                cwd=folder,
                env={
                    "RANK": str(rank),
                    "WORLD_SIZE": str(size),
                    "LOCAL_RANK": str(rank % per_node),
                    "LOCAL_WORLD_SIZE": str(per_node),
                    "NODE_RANK": str(rank // per_node),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "TRAINYARD_RUN_DIR": str(folder / "run"),
                    "BACKEND": backend,
                },
                log=folder / f"log-{rank}",
            )
            for rank in range(size)
        ]

    def log(self, rank: int = 0) -> str:
        return (self.folder / f"log-{rank}").read_text()

    def throttle(self, rank: int, *, after: str) -> threading.Thread:
        """Let a rank run for a tenth of the time, once rank 0 has said something."""
        pid, bound = self._pids[rank], Bound(RUN_S)

        def work() -> None:
            while after not in self.log() and self._zygote.code(pid) is None:
                bound.check(self.log)
                time.sleep(0.01)
            while self._zygote.code(pid) is None:
                bound.check(self.log)
                with contextlib.suppress(ProcessLookupError):  # it ended just now
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(0.27)
                    os.kill(pid, signal.SIGCONT)
                time.sleep(0.03)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def wait(self) -> list[int | None]:
        self._zygote.wait(self._pids, RUN_S)
        return [self._zygote.code(pid) for pid in self._pids]


def test_two_ranks_print_a_table_and_leave_figures_and_a_picture(
    zygote: Zygote, tmp_path: Path
) -> None:
    ranks = Ranks(zygote, tmp_path, 2, per_node=2)
    assert ranks.wait() == [0, 0], ranks.log()
    row = re.compile(r" +\S+ (B|KiB|MiB) +\S+ (us|ms|s) +\d+\.\d+ +\d+\.\d+")
    printed = [line for line in ranks.log().splitlines() if row.fullmatch(line)]
    table = (tmp_path / "outputs" / "bandwidth" / "all-reduce.csv").read_text().splitlines()
    assert table[0] == "bytes,time_us,algorithm_gb_per_s,bus_gb_per_s"
    sizes = [int(line.split(",")[0]) for line in table[1:]]
    assert sizes == [8, 32, 128, 512, 2048, 8192, 32768, 131072, 524288, 1 << 20]
    assert len(printed) == len(sizes)
    with Image.open(tmp_path / "outputs" / "bandwidth" / "all-reduce.png") as picture:
        assert picture.size == (960, 540)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    assert [each["value"] for each in metrics if each["name"] == "bytes"] == sizes
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["bus_gb_per_s"] > 0
    assert (summary["world_size"], len(summary["nodes_gb_per_s"]), summary["problems"]) == (
        2,
        1,
        [],
    )


def test_throttled_node_is_named_and_fails_the_check(zygote: Zygote, tmp_path: Path) -> None:
    # A measurement lasts for several turns of the throttle.
    ranks = Ranks(zygote, tmp_path, 3, repeats=180)
    throttle = ranks.throttle(1, after=LAST_SIZE)
    codes = ranks.wait()
    throttle.join()
    assert codes == [1, 0, 0], ranks.log()
    error = ranks.log().splitlines()[-1]
    assert error.startswith("error: node 1 ("), error
    assert " is slow: its best pair has " in error
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["problems"][0].startswith("node 1 (")


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_every_rank_says_which_one_got_a_wrong_sum(zygote: Zygote, tmp_path: Path, backend) -> None:
    """None waits for one that has ended, nor, over NCCL, to leave the others."""
    ranks = Ranks(zygote, tmp_path, 2, per_node=2, module=WRONG_SUM, backend=backend)
    assert ranks.wait() == [1, 1], ranks.log()
    told = "error: rank 1 got a wrong sum of 8 B (hint: its node's GPU or network corrupts data: "
    for rank in (0, 1):
        assert ranks.log(rank).splitlines()[-1].startswith(told), ranks.log(rank)


def test_ranks_that_the_command_line_names_are_nodes(zygote: Zygote, tmp_path: Path) -> None:
    """Each is told as Batch AI told it, and takes its machine for a node of its own."""
    own = ["--max-mb", "1", "--repeats", "1", "--dist-backend", "gloo"]
    own += ["--dist-url", f"file://{tmp_path}/init", "--world-size", "2"]
    env = {"GLOO_SOCKET_IFNAME": "lo", "TRAINYARD_RUN_DIR": str(tmp_path / "run")}
    logs = [tmp_path / f"log-{rank}" for rank in (0, 1)]
    pids = [
        zygote.fork([MODULE, *own, "--rank", str(rank)], cwd=tmp_path, env=env, log=log)
        for rank, log in enumerate(logs)
    ]
    assert zygote.wait(pids, RUN_S)
    assert [zygote.code(pid) for pid in pids] == [0, 0], logs[0].read_text()
    assert "all-reduce over 2 ranks on 2 nodes (gloo)" in logs[0].read_text()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["world_size"], summary["backend"]) == (2, "gloo")
    assert [len(summary[key]) for key in ("nodes_gb_per_s", "pairs_gb_per_s")] == [0, 2]
    told = [line for line in logs[0].read_text().splitlines() if " GB/s with " in line]
    host = socket.gethostname()
    place = re.compile(r"^  (.*): \d+\.\d+ GB/s with (\d)( +SLOW)?$")
    found = [match.groups()[:2] for line in told if (match := place.match(line))]
    assert found == [(f"node 0 ({host})", "1"), (f"node 1 ({host})", "0")]


def test_one_rank_has_nothing_to_compare(zygote: Zygote, tmp_path: Path) -> None:
    ranks = Ranks(zygote, tmp_path, 1)
    assert ranks.wait() == [0], ranks.log()
