"""Measures how fast the ranks add up tensors, and names the node that is slow.

    launch run nccl-check -s STACK
    launch shell pytorch -- python -m trainer.pytorch.nccl_check

All ranks add up messages of growing size: time, algorithm and bus bandwidth of each, over NCCL on
GPUs and Gloo elsewhere. Then the ranks of each node alone, against the floor that Azure has for its VM size. Then
nodes in pairs, each with up to three others: a node that is slow with all of them is the slow one. On one node
the pairs are of ranks. It fails where a node is slow or below its floor.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import distributed

from trainer.common.bandwidth import (
    GIB,
    Floor,
    algorithm_bandwidth,
    best_of_pairs,
    bus_bandwidth,
    find_floor,
    message_sizes,
    pair_rounds,
    size_text,
    slow_units,
    time_text,
)
from trainer.common.errors import TrainingError
from trainer.common.messages import say
from trainer.common.metrics import MainFigure, Metrics
from trainer.common.options import parse_options
from trainer.common.program import group_left
from trainer.common.rundir import RunDir
from trainer.common.training_options import Bounds, DeviceName
from trainer.common.whole_file import write_whole
from trainer.common.world import World
from trainer.pytorch.bandwidth_picture import draw_bandwidths
from trainer.pytorch.program import RankOptions
from trainer.pytorch.strategy import Ddp, pick_device

PROGRAM = "trainer.pytorch.nccl_check"
MAIN_FIGURE = MainFigure(split="all-reduce", name="bus_gb_per_s", goal="max")
MOST_ON_CPU, MOST_ON_GPU, MOST_OF_A_PAIR = 16 << 20, GIB, 256 << 20
NUM_BATCHES = 3  # the fastest one counts: other work of a machine only ever slows one down
LONGEST_HOST = 64
# What decides over which network NCCL goes; the log says what it was.
SHOWN = ("NCCL_", "UCX_", "GLOO_", "CUDA_DEVICE_ORDER")


@dataclass(frozen=True, kw_only=True)
class Options(RankOptions, Bounds):
    """The command line; parse_options makes it."""

    max_mb: Annotated[int | None, "largest message in MiB (default: 1024 on GPUs, else 16)"] = None
    repeats: Annotated[int, "all-reduces in each of three measurements of a message"] = 20
    device: Annotated[DeviceName, "device that the tensors are on"] = "auto"

    def __post_init__(self) -> None:
        self.require_positive("max_mb", "repeats")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One size of message: the mean time over all ranks of an all-reduce, and its bandwidths."""

    num_bytes: int
    seconds: float
    num_ranks: int

    @property
    def algorithm(self) -> float:
        """The algorithm bandwidth in GB/s."""
        return algorithm_bandwidth(self.num_bytes, self.seconds)

    @property
    def bus(self) -> float:
        """The bus bandwidth in GB/s."""
        return bus_bandwidth(self.num_bytes, self.seconds, self.num_ranks)


class Check:
    """One rank's part: every rank calls each method, in the same order."""

    def __init__(self, options: Options, world: World, run_dir: RunDir) -> None:
        self._options, self._world, self._run_dir = options, world, run_dir
        self.device = pick_device(options.device, world)
        has_gpu = self.device.type == "cuda"
        most = MOST_ON_GPU if has_gpu else MOST_ON_CPU
        self._most = options.max_mb << 20 if options.max_mb else most
        self._floor = find_floor(os.environ.get("TRAINYARD_NODE_SIZE")) if has_gpu else None
        self._num_nodes = max(1, world.size // world.local_size)
        self._problems: list[str] = []

    def run(self) -> None:
        """Measure and tell; raises TrainingError where a sum is wrong."""
        self._hosts = self._gather_hosts()
        self._say_what()
        measured = self._measure_sizes()
        nodes = self._measure_nodes()
        pairs = self._measure_pairs()
        if self._world.is_main:
            self._write(measured, nodes, pairs)

    def judge(self) -> None:
        """Raise TrainingError on rank 0 where something is too slow; no collective comes after it."""
        if self._problems:
            hint = "take the node out of the cluster, or run the check once more"
            raise TrainingError("; ".join(self._problems), hint=hint)

    def _say_what(self) -> None:
        if not self._world.is_main:
            return
        backend, size = distributed.get_backend(), os.environ.get("TRAINYARD_NODE_SIZE", "")
        place = f"{self._num_nodes} nodes" if self._num_nodes > 1 else "1 node"
        say(
            f"all-reduce over {self._world.size} ranks on {place} {size} ({backend})".replace(
                "  ", " "
            )
        )
        chosen = sorted(name for name in os.environ if name.startswith(SHOWN))
        say("".join(f"  {name}={os.environ[name]}\n" for name in chosen).rstrip() or "  no NCCL_*")

    def _measure_sizes(self) -> list[Measured]:
        """Measure every size over all ranks, and print and log each."""
        found: list[Measured] = []
        if self._world.is_main:
            say(f"{'SIZE':>10} {'TIME':>12} {'ALGORITHM GB/S':>16} {'BUS GB/S':>12}")
        # By hand it may write beside a training.
        metrics = Metrics(
            self._run_dir.metrics, self._world, only_split=MAIN_FIGURE.split, main=MAIN_FIGURE
        )
        with metrics:
            for step, num_bytes in enumerate(message_sizes(self._most), start=1):
                each = self._measure(num_bytes, None, self._world.size)
                found.append(each)
                if self._world.is_main:
                    told = f"{size_text(num_bytes):>10} {time_text(each.seconds):>12}"
                    say(f"{told} {each.algorithm:>16.3f} {each.bus:>12.3f}")
                figures = {"bytes": num_bytes, "time_us": each.seconds * 1e6}
                bandwidth = {"bus_gb_per_s": each.bus}
                metrics.log(step=step, epoch=0, split=MAIN_FIGURE.split, **figures, **bandwidth)
        return found

    def _measure_nodes(self) -> list[float]:
        """Measure each node alone; gives their bus bandwidths, none where nodes have one rank."""
        if self._world.local_size < 2:
            return []
        groups = [self._group([node]) for node in range(self._num_nodes)]
        own = groups[self._world.node_rank]
        num_bytes = self._floor.num_bytes if self._floor else self._most
        found = self._measure(num_bytes, own, self._world.local_size)
        figures = self._gather(found.bus)
        nodes = [figures[node * self._world.local_size] for node in range(self._num_nodes)]
        if self._world.is_main:
            self._tell_nodes(nodes, num_bytes, self._floor)
        return nodes

    def _tell_nodes(self, nodes: Sequence[float], num_bytes: int, floor: Floor | None) -> None:
        least = f"at least {floor.gb_per_s:g}" if floor else "no floor is published for this size"
        say(f"each node alone, {size_text(num_bytes)} ({least}):")
        for node, figure in enumerate(nodes):
            is_low = floor is not None and figure < floor.gb_per_s
            say(f"  {self._name(node, 'node')}: {figure:.3f} GB/s{'  BELOW' if is_low else ''}")
            if is_low and floor is not None:
                told = f"{figure:.1f} GB/s, below the floor of {floor.gb_per_s:g} GB/s"
                self._problems.append(f"{self._name(node, 'node')} has {told} of its VM size")

    def _measure_pairs(self) -> list[float]:
        """Measure pairs of nodes, or of ranks on one node; gives the best figure of each."""
        kind = "node" if self._num_nodes > 1 else "rank"
        num_units = self._num_nodes if kind == "node" else self._world.size
        own = self._world.node_rank if kind == "node" else self._world.rank
        per_unit = self._world.size // num_units
        num_bytes = min(self._most, MOST_OF_A_PAIR)
        measured: list[tuple[int, int, float]] = []
        for pairs in pair_rounds(num_units):
            groups = [self._group(pair, kind) for pair in pairs]
            mine = next((number for number, pair in enumerate(pairs) if own in pair), None)
            figure = 0.0
            if mine is not None:
                figure = self._measure(num_bytes, groups[mine], 2 * per_unit).bus
            figures = self._gather(figure)
            measured += [(a, b, figures[a * per_unit]) for a, b in pairs]
        best = best_of_pairs(measured, num_units)
        if self._world.is_main and num_units > 1:
            self._tell_pairs(best, measured, kind, num_bytes)
        return best

    def _tell_pairs(
        self,
        best: Sequence[float],
        measured: Sequence[tuple[int, int, float]],
        kind: str,
        num_bytes: int,
    ) -> None:
        say(f"{kind}s in pairs, {size_text(num_bytes)}, the best pair of each:")
        slow = slow_units(best)
        for unit, figure in enumerate(best):
            partners = [str(b if a == unit else a) for a, b, _ in measured if unit in (a, b)]
            told = f"{figure:.3f} GB/s with {', '.join(partners)}"
            say(f"  {self._name(unit, kind)}: {told}{'  SLOW' if unit in slow else ''}")
        for unit in slow:
            told = f"its best pair has {best[unit]:.3f} GB/s, the best one {max(best):.3f} GB/s"
            self._problems.append(f"{self._name(unit, kind)} is slow: {told}")
        if len(best) == 2 and kind == "node":
            say("  of two nodes no pair tells which one is slow: take a third")

    def _measure(self, num_bytes: int, group: Any, num_ranks: int) -> Measured:
        """Time all-reduces of zeros; the first one, of ones, is checked."""
        tensor = torch.ones(max(num_bytes // 4, 1), device=self.device)
        distributed.all_reduce(tensor, group=group)
        self._require_right(bool((tensor == num_ranks).all()), num_bytes, group)
        tensor.zero_()
        fastest_s = min(self._time(tensor, group) for _ in range(NUM_BATCHES))
        mean = torch.tensor([fastest_s], dtype=torch.float64, device=self.device)
        distributed.all_reduce(mean, group=group)
        return Measured(num_bytes=num_bytes, seconds=mean.item() / num_ranks, num_ranks=num_ranks)

    def _require_right(self, is_right: bool, num_bytes: int, group: Any) -> None:
        """Raise TrainingError on all ranks of the group, of which none may wait for one that has ended."""
        wrong = torch.zeros(self._world.size, dtype=torch.float64, device=self.device)
        wrong[self._world.rank] = not is_right
        distributed.all_reduce(wrong, group=group)
        found = [str(rank) for rank, each in enumerate(wrong.tolist()) if each]
        if found:
            who = f"rank{'s' if len(found) > 1 else ''} {', '.join(found)}"
            message = f"{who} got a wrong sum of {size_text(num_bytes)}"
            hint = "its node's GPU or network corrupts data: take it out"
            raise TrainingError(message, hint=hint)

    def _time(self, tensor: torch.Tensor, group: Any) -> float:
        distributed.barrier(group=group)
        self._synchronize()
        began_s = time.perf_counter()
        for _ in range(self._options.repeats):
            distributed.all_reduce(tensor, group=group)
        self._synchronize()
        return (time.perf_counter() - began_s) / self._options.repeats

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _group(self, units: Sequence[int], kind: str = "node") -> Any:
        """Make the group of some nodes' or ranks' ranks; every rank makes every group."""
        per_unit = self._world.local_size if kind == "node" else 1
        ranks = [unit * per_unit + local for unit in units for local in range(per_unit)]
        return distributed.new_group(ranks)

    def _gather(self, value: float) -> list[float]:
        """Give every rank's value."""
        values = torch.zeros(self._world.size, dtype=torch.float64, device=self.device)
        values[self._world.rank] = value
        distributed.all_reduce(values)
        return values.tolist()

    def _gather_hosts(self) -> list[str]:
        """Give every rank's host."""
        hosts = torch.zeros(self._world.size, LONGEST_HOST, dtype=torch.uint8, device=self.device)
        name = socket.gethostname().encode()[:LONGEST_HOST]
        hosts[self._world.rank, : len(name)] = torch.tensor(list(name), device=self.device)
        distributed.all_reduce(hosts)
        return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in hosts.tolist()]

    def _name(self, unit: int, kind: str) -> str:
        first = unit * self._world.local_size if kind == "node" else unit
        return f"{kind} {unit} ({self._hosts[first]})"

    def _write(
        self, measured: Sequence[Measured], nodes: Sequence[float], pairs: Sequence[float]
    ) -> None:
        """Write the table, its picture and the summary."""
        folder = self._run_dir.output("bandwidth")
        rows = [
            f"{each.num_bytes},{each.seconds * 1e6:.3f},{each.algorithm:.4f},{each.bus:.4f}"
            for each in measured
        ]
        table = "\n".join(["bytes,time_us,algorithm_gb_per_s,bus_gb_per_s", *rows, ""])
        write_whole(folder / "all-reduce.csv", table.encode())
        points = [(each.num_bytes, each.bus) for each in measured]
        write_whole(folder / "all-reduce.png", draw_bandwidths(points))
        self._run_dir.write_summary(
            {
                "program": PROGRAM,
                "backend": distributed.get_backend(),
                "world_size": self._world.size,
                "vm_size": os.environ.get("TRAINYARD_NODE_SIZE"),
                "floor_gb_per_s": self._floor.gb_per_s if self._floor else None,
                "latency_us": round(measured[0].seconds * 1e6, 3),
                "bus_gb_per_s": round(max(each.bus for each in measured), 4),
                "nodes_gb_per_s": [round(each, 4) for each in nodes],
                "pairs_gb_per_s": [round(each, 4) for each in pairs],
                "problems": self._problems,
            }
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Check as one of the ranks; gives the exit code."""
    options = parse_options(Options, argv, description=__doc__ or "")
    ranks = Ddp()
    try:
        world = World.from_environment(arguments=options.ranks)
        torch.set_num_threads(world.num_threads)
        check = Check(options, world, RunDir.from_environment())
        ranks.init(world, check.device)
        with group_left(ranks):
            check.run()
        check.judge()
    except TrainingError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
