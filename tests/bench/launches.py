"""Launch overhead of a gang of two: `launch run` against torchrun and horovodrun."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from statistics import median

from tests.bench.pairs import Command, Timing, time_in_turn
from tests.bench.table import Row
from tests.bench.workspace import launch_program, local_environment, runtime_bin

RANKS = Path(__file__).parent / "ranks"


def launch_rows(project: Path, rounds: int) -> list[Row]:
    """Time bare imports, ours and the peer in turn, for torch and for Horovod."""
    programs = runtime_bin(project)
    python = programs / "python"
    torchrun = [
        str(programs / "torchrun"),
        "--nproc-per-node",
        "2",
        str(RANKS / "barrier_torch.py"),
    ]
    horovodrun = [
        str(programs / "horovodrun"), "--gloo", "-np", "2",
        str(python), str(RANKS / "barrier_horovod.py"),
    ]  # fmt: skip
    fenced = ["unshare", "-rn", "sh", "-c", "ip link set lo up && exec " + shlex.join(horovodrun)]
    path = {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin"}
    return [
        _row(project, rounds, "torch", "torch.distributed", "torchrun", torchrun, path, 1.0),
        _row(project, rounds, "horovod", "horovod.torch", "horovodrun --gloo", fenced, path, 0.6),
    ]


def _row(
    project: Path,
    rounds: int,
    launcher: str,
    imports: str,
    peer: str,
    peer_argv: list[str],
    peer_env: dict[str, str],
    at_most: float,
) -> Row:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = local_environment(folder)
        job = _job_file(folder, launcher)
        timings = time_in_turn(
            [
                Command(name="bare imports", argv=_two_bare(project, imports)),
                Command(
                    name=f"launch run ({launcher})",
                    argv=[
                        str(launch_program(project)),
                        *("run", str(job), "--env", str(environment)),
                    ],
                ),
                Command(name=peer, argv=peer_argv, env=peer_env, cwd=folder),
            ],
            rounds=rounds,
        )
    bare = timings["bare imports"]
    ours_s = _overhead_s(timings[f"launch run ({launcher})"], bare)
    peer_s = _overhead_s(timings[peer], bare)
    return Row(
        goal=f"launch overhead of two ranks, `launcher: {launcher}`",
        ours=f"{ours_s:.2f} s",
        peer=f"`{peer}` {peer_s:.2f} s",
        ratio=ours_s / peer_s,
        at_most=at_most,
    )


def _overhead_s(timings: list[Timing], bare: list[Timing]) -> float:
    return median(timing.wall_s - base.wall_s for timing, base in zip(timings, bare, strict=True))


def _two_bare(project: Path, imports: str) -> list[str]:
    python = shlex.quote(str(runtime_bin(project) / "python"))
    one = f"{python} -c 'import {imports}'"
    return ["sh", "-c", f"{one} & {one} & wait"]


def _job_file(folder: Path, launcher: str) -> Path:
    script = RANKS / f"barrier_{launcher}.py"
    code = folder / "code"
    code.mkdir()
    (code / "rank.py").write_text(script.read_text())
    job = code / "job.yaml"
    job.write_text(
        f"name: barrier-{launcher}\n"
        "image: pytorch\n"
        f"launcher: {launcher}\n"
        "script: rank.py\n"
        "code: .\n"
        "processes_per_node: 2\n"
    )
    return job
