"""Our programs on the device: what waits, what is compiled, halves, votes, and resumed trainings."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import mean

from tests.bench.resnet50_gpu import has_horovod_with_nccl
from tests.gpu.findings import Finding, at_least, within
from tests.gpu.programs import PREEMPTED, Ended, Where, at_once, train
from tests.gpu.ranks import FAILED
from trainer.common.accelerators import has_instructions
from trainer.data.synthesize.coco import make_coco
from trainer.data.synthesize.digits import make_default_digits
from trainer.data.synthesize.stripes import INSECTS, make_pictures

# Mask R-CNN is torchvision's, which asks the GPU how many boxes there are; so does our choice of regions, each
# time that it asks whether anything has changed, and so do our parts: of the heads' regions, and of each pool's levels.
CHOICE, MOST_QUESTIONS = "maskrcnn_proposals.py", 8
PARTS, NUM_QUESTIONS = "maskrcnn_waits.py", 3
TORCHVISIONS = {"torchvision/_utils.py", "torchvision/roi_heads.py", "torchvision/rpn.py"}
# A loss of 64 pictures in eight bits of mantissa.
MOST_APART = 0.05
# Both average the same gradients, in another order.
MOST_APART_OF_STRATEGIES = 0.01
STOP_AFTER_STEP = 6
SMALL = ("trainer.pytorch.classifier", "--network", "resnet18", "--image-size", "64")
SMALL = (*SMALL, "--data", "synthetic", "--num-images", "512", "--batch-per-rank", "32")
SMALL = (*SMALL, "--log-every", "1")


@cache
def data(folder: Path) -> dict[str, Path]:
    """Make what the programs train on, once."""
    make_pictures(
        folder / "insects", num_classes=2, num_train=64, num_val=16, size=72, seed=2, names=INSECTS
    )
    make_coco(folder / "shapes", num_train=40, num_val=4, seed=1)
    digits = make_default_digits(num_train=2000, num_test=100, seed=1)
    return {"digits": digits, "insects": folder / "insects", "shapes": folder / "shapes"}


def programs(where: Where) -> dict[str, tuple[str, ...]]:
    """A small training of two epochs by each program."""
    made = data(where.folder)
    return {
        "mnist": ("trainer.pytorch.mnist", "--data", str(made["digits"]), "--epochs", "2"),
        "hymenoptera": (
            *("trainer.pytorch.hymenoptera", "--data", str(made["insects"]), "--weights", "none"),
            *("--train", "all", "--batch-per-rank", "8", "--epochs", "2", "--image-size", "64"),
        ),
        "resnet50": (
            *("trainer.pytorch.resnet50", "--data", str(made["insects"])),
            *("--precision", half(where)),
            *("--batch-per-rank", "8", "--epochs", "2", "--image-size", "64"),
        ),
        "maskrcnn": (
            *("trainer.pytorch.maskrcnn", "--data", str(made["shapes"]), "--backbone", "resnet18"),
            *("--backbone-weights", "none", "--image-size", "128", "--regions-per-image", "16"),
            *("--epochs", "2", "--no-evaluate", "--precision", half(where)),
        ),
    }


def half(where: Where) -> str:
    """What Mask R-CNN and ResNet-50 compute in: a CPU without instructions for bf16 takes minutes."""
    return "bf16" if where.device == "cuda" or has_instructions("bf16") else "fp32"


def options_of_steps(where: Where) -> dict[str, tuple[str, ...]]:
    """A small training for each option that does something in a step."""
    _, *usual = programs(where)["resnet50"]
    small = ("trainer.pytorch.classifier", "--network", "resnet18", *usual)
    fp16 = ("--precision", "fp16" if where.device == "cuda" else "fp32")
    return {
        "mixed, clipped, averaged": (
            *(*small, "--mixup", "0.2", "--cutmix", "1"),
            *("--clip-norm", "1", "--ema", "0.9"),
        ),
        "lamb": (*small, "--optimizer", "lamb", "--lr", "0.001"),
        "fp16": (*small, *fp16, "--clip-norm", "1"),
        "fp16, adamw": (*small, *fp16, "--optimizer", "adamw", "--lr", "0.001"),
    }


def waits(where: Where) -> Sequence[Finding]:
    """Let PyTorch refuse what waits for the device in the second epoch of each program.

    The guard alone may wait, for the sums of the step before. What torchvision's Mask R-CNN waits for
    is told.
    """

    def look(name: str) -> Finding:
        is_torchvisions = name == "maskrcnn"
        start = ("-m", "tests.gpu.synchronisations", *(("--tell",) if is_torchvisions else ()))
        what = f"{name}: what waits for the GPU within steps"
        try:
            ended = train(where, f"waits-{name}", *tried[name], start=start).require()
        except RuntimeError as error:
            return Finding(what=what, seen=str(error), wanted="an end", is_met=False)
        told = json.loads(ended.output.splitlines()[-1])
        files: dict[str, int] = told["files"]
        seen = [f"{file} {number}x" for file, number in files.items()]
        seen.append(f"the guard {told['readings']}x in {told['steps']} steps")
        allowed = {*TORCHVISIONS, CHOICE, PARTS} if is_torchvisions else set[str]()
        is_few = told["readings"] <= told["steps"]
        is_few &= files.get(CHOICE, 0) <= MOST_QUESTIONS * told["steps"]
        is_few &= files.get(PARTS, 0) <= NUM_QUESTIONS * told["steps"]
        others = f", our parts {NUM_QUESTIONS} times, our choice of regions {MOST_QUESTIONS} times, and torchvision"
        return Finding(
            what=what,
            seen=", ".join(seen),
            wanted=f"the guard once a step{others if is_torchvisions else ''}",
            is_met=set(files) <= allowed
            and is_few
            and (where.device == "cpu" or told["steps"] > 0),
        )

    tried = programs(where) | options_of_steps(where)
    return at_once(look, tried)


def compiled(where: Where) -> Sequence[Finding]:
    """Train with `--compile` and without."""
    eager, made = (
        train(where, name, *SMALL, "--epochs", "2", *more).require()
        for name, more in (("eager", ()), ("compiled", ("--compile",)))
    )
    return [
        within("`--compile`: losses, against eager ones", _losses_apart(eager, made), MOST_APART)
    ]


def precisions(where: Where) -> Sequence[Finding]:
    """Train in bf16 and fp16 as in fp32; a CPU in what it has instructions for."""
    halves = [name for name in ("bf16", "fp16") if where.device == "cuda" or has_instructions(name)]
    fp32, *others = (
        train(where, name, *SMALL, "--epochs", "2", "--precision", name).require()
        for name in ("fp32", *halves)
    )
    return [
        within(f"{name}: losses, against fp32's", _losses_apart(fp32, half), MOST_APART)
        for name, half in zip(halves, others, strict=True)
    ]


def votes(where: Where) -> Sequence[Finding]:
    """Ask one rank to leave: all leave at one step, over NCCL, with a checkpoint of it; then go on."""
    num_ranks, start = where.num_ranks, where.as_ranks
    arguments = (*SMALL, "--epochs", "4", "--checkpoint-every", "1000", "--strategy", "ddp")
    whole = train(where, "whole", *arguments, num_ranks=num_ranks, start=start).require()
    stop = STOP_AFTER_STEP
    left = train(where, "left", *arguments, num_ranks=num_ranks, start=start, stop_after_step=stop)
    steps = len(left.require(PREEMPTED).losses)
    again = train(where, "left", *arguments, num_ranks=num_ranks, start=start).require()
    return [
        Finding(
            what=f"{_so_many(where)}, one of which is asked to leave",
            seen=f"all left after step {steps}",
            wanted=f"with exit code {PREEMPTED}, at one step before the last",
            is_met=stop <= steps < len(whole.losses),
        ),
        Finding(
            what="the training that goes on from there",
            seen=f"from step {again.summary['resumed_from_step']}",
            wanted=f"from step {steps}",
            is_met=again.summary["resumed_from_step"] == steps,
        ),
        within("its losses, against the whole training's", _losses_apart(whole, again), MOST_APART),
    ]


def lone_failure(where: Where) -> Sequence[Finding]:
    """Let a rank fail while the others wait for it in NCCL: it ends, so that its launcher ends them."""
    start = (*where.as_ranks, "--fail-at", str(STOP_AFTER_STEP))
    arguments = (*SMALL, "--epochs", "2", "--strategy", "ddp")
    ended = train(
        where, "lone", *arguments, num_ranks=where.num_ranks, start=start, is_over_with_last=True
    )
    _, said, when = ended.output.rpartition(FAILED)
    if not said or ended.codes[-1] != 1:
        raise RuntimeError(f"the rank ended with {ended.codes[-1]}: {ended.output[-1000:]}")
    took_s = time.time() - float(when.split()[0])
    return [within(f"{_so_many(where)}, one of which fails: seconds to its end", took_s, 30)]


def horovod(where: Where) -> Sequence[Finding]:
    """Train by Horovod over NCCL, as mpirun starts it, and by DDP."""
    if where.device == "cuda" and not has_horovod_with_nccl():
        what, seen = "Horovod over NCCL", "not tried: this Python has no such Horovod"
        return [Finding(what=what, seen=seen, wanted="losses as DDP's", is_met=False)]
    arguments = (*SMALL, "--epochs", "2")
    num_ranks, start = where.num_ranks, where.as_ranks
    ddp, by_horovod = (
        train(
            *(where, name, *arguments, "--strategy", name),
            num_ranks=num_ranks,
            start=start,
            by_mpi=name == "horovod",
        ).require()
        for name in ("ddp", "horovod")
    )
    what = f"Horovod, {_so_many(where)}: losses, against DDP's"
    return [within(what, _losses_apart(ddp, by_horovod), MOST_APART_OF_STRATEGIES)]


def links(where: Where) -> Sequence[Finding]:
    """Measure all-reduce by `nccl-check`; ranks that share a GPU exchange little, over loopback."""
    name = "trainer.pytorch.nccl_check"
    has_links = where.num_gpus > 1
    sizes = () if has_links else ("--max-mb", "16", "--repeats", "3")
    num_ranks, start = where.num_ranks, where.as_ranks
    ended = train(where, "links", name, *sizes, num_ranks=num_ranks, start=start).require()
    best = max(line["value"] for line in ended.metrics if line["name"] == "bus_gb_per_s")
    what = f"nccl-check, {_so_many(where)}: bus bandwidth, GB/s"
    return [at_least(what, best, 1.0 if has_links else 0.01)]


def _so_many(where: Where) -> str:
    """Say how many ranks there are, and whether they share a GPU."""
    return f"{where.num_ranks} ranks{' on one GPU' if where.num_gpus == 1 else ''}"


def _losses_apart(left: Ended, right: Ended) -> float:
    """The mean difference of two trainings' losses, as a share of the first one's."""
    steps = left.losses.keys() & right.losses.keys()
    if len(steps) != len(left.losses):
        raise RuntimeError(f"losses of {len(steps)} steps, of {len(left.losses)}")
    apart = mean(abs(left.losses[step] - right.losses[step]) for step in steps)
    return apart / mean(left.losses.values())
