"""Tries on a GPU what only a GPU can show, and writes docs/benchmarks/gpu.md: `make gpu`.

    python -m tests.gpu [--only NAME ...] [--rounds N] [--device cpu]

Needs a Python with the pytorch image's packages, and timm for a peer: `make gpu` makes one of the `pytorch` runtime
(tests/gpu/python.py), or takes `GPU_PYTHON=...`. A whole run on a GPU writes the page, goals met or not: after each
step of it, so that a machine that is taken back leaves what was found.
Peers are timed in turn, in N rounds. `--device cpu` tries the checks themselves, without those of speed and memory.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.bench.table import hardware, replace_table
from tests.gpu.findings import Check, Finding
from tests.gpu.programs import PROJECT, Where, at_once

PAGE = PROJECT / "docs" / "benchmarks" / "gpu.md"
PACKAGES = ("torch", "torchvision", "safetensors", "simplejpeg", "pycocotools", "timm")
# What a check may end with: a rank's fault, a missing figure, a GPU out of memory, a library's own.
FAULTS = (
    ArithmeticError,
    AssertionError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    ValueError,
)
FAULTS = (*FAULTS, subprocess.SubprocessError)
# Rates and memory are told of a GPU that does nothing else.
ALONE = ("resnet50", "mask-rcnn", "pictures", "memory")


def checks() -> dict[str, Check]:
    """Every check by its name, in the order in which they are tried."""
    from tests.gpu import kernels, memory, speed, trainings

    return {
        "kernels": kernels.kernels,
        "waits": trainings.waits,
        "compile": trainings.compiled,
        "precisions": trainings.precisions,
        "votes": trainings.votes,
        "links": trainings.links,
        "lone failure": trainings.lone_failure,
        "horovod": trainings.horovod,
        "resnet50": speed.resnet50,
        "mask-rcnn": speed.mask_rcnn,
        "pictures": speed.pictures,
        "memory": memory.largest_batch,
    }


def main() -> int:
    """Try the checks; 1 where one is not met, 2 where they cannot be tried here."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="try these checks alone")
    parser.add_argument(
        "--rounds", type=int, default=3, help="of the checks of speed (%(default)s)"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    problem = find_problem(options.device)
    if problem is not None:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    known = checks()
    names = options.only or [
        each for each in known if options.device == "cuda" or each not in ALONE
    ]
    unknown = [each for each in names if each not in known]
    if unknown:
        print(
            f"error: no check {', '.join(unknown)}\nhint: one of {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    began_s = time.monotonic()
    import torch

    num_gpus = torch.cuda.device_count() if options.device == "cuda" else 0
    together = [each for each in names if each not in ALONE]
    steps = [together] * bool(together) + [[each] for each in names if each in ALONE]
    is_written = options.device == "cuda" and not options.only

    def write(found: Sequence[Finding], left: Sequence[str]) -> None:
        took_s = time.monotonic() - began_s
        text = page_text(found, machine(), options.rounds, took_s, not_tried=left)
        replace_table(PAGE, text)

    with tempfile.TemporaryDirectory(prefix="trainyard-gpu-") as name:
        where = Where(
            device=options.device, num_gpus=num_gpus, folder=Path(name), rounds=options.rounds
        )
        tried = [{name: known[name] for name in step} for step in steps]
        found = in_turn(tried, where, write if is_written else None)
    if is_written:
        print(f"written: {PAGE.relative_to(PROJECT)}")
    return 0 if all(each.is_met for each in found) else 1


def find_problem(device: str) -> str | None:
    """Say why nothing can be tried here, and what helps; None where it can."""
    needed = PACKAGES if device == "cuda" else PACKAGES[:-1]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        hint = "`make gpu` makes a Python that has them, or takes yours as GPU_PYTHON=..."
        return f"not installed here: {', '.join(missing)}\nhint: {hint}"
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        hint = "`nvidia-smi` shows the driver; `launch doctor` says which image fits it"
        return f"PyTorch {torch.__version__} sees no GPU here\nhint: {hint}"
    return None


def in_turn(
    steps: Sequence[Mapping[str, Check]],
    where: Where,
    write: Callable[[Sequence[Finding], Sequence[str]], None] | None,
) -> Sequence[Finding]:
    """Try the checks of each step at once, and after it `write` what was found and which are left."""
    found: list[Finding] = []
    for number, step in enumerate(steps, 1):
        found += try_all(step, where)
        if write is not None:
            write(found, [name for later in steps[number:] for name in later])
    return found


def try_all(tried: Mapping[str, Check], where: Where) -> list[Finding]:
    """Try checks, several at once, and print what they found; one that fails keeps none away."""

    def look(title: str) -> tuple[Sequence[Finding], float]:
        began_s = time.monotonic()
        own = dataclasses.replace(where, folder=where.folder / title)
        own.folder.mkdir()
        try:
            seen = tried[title](own)
        except FAULTS as error:
            seen = [Finding(what=title, seen=str(error), wanted="an end", is_met=False)]
        return seen, time.monotonic() - began_s

    found: list[Finding] = []
    for title, (seen, took_s) in zip(tried, at_once(look, tried), strict=True):
        print(f"{title} ({took_s:.0f} s)", flush=True)
        for each in seen:
            print(f"  {'ok ' if each.is_met else 'NO '} {each.what}: {each.seen} ({each.wanted})")
        found.extend(seen)
    return found


def machine() -> str:
    """Say which GPUs and packages these are."""
    import torch

    names = [torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())]
    cuda = f"CUDA {torch.version.cuda}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"
    gpus = ", ".join(f"{names.count(each)} x {each}" for each in dict.fromkeys(names))
    return f"{gpus}; PyTorch {torch.__version__}, {cuda}; {hardware()}"


def page_text(
    found: Sequence[Finding],
    hardware_text: str,
    rounds: int,
    took_s: float,
    *,
    not_tried: Sequence[str] = (),
) -> str:
    """Give the page's Markdown."""

    def cell(text: str) -> str:
        return " ".join(text.split()).replace("|", "\\|")

    date = datetime.datetime.now(datetime.UTC)
    num_missed = sum(not each.is_met for each in found)
    left = f" Not tried: {', '.join(not_tried)}." if not_tried else ""
    lines = [
        "# On a GPU",
        "",
        f"Command: `python -m tests.gpu --rounds {rounds}`, {took_s / 60:.0f} minutes. Date: {date:%Y-%m-%d}. "
        f"Hardware: {hardware_text}.",
        "",
        f"{len(found)} findings, {num_missed} of them missed.{left} What each check does: `tests/gpu`. Rates "
        f"are medians of runs in turn, in rounds: {rounds}; ratios are ours divided by the peer's.",
        "",
        "| what | seen | wanted | met |",
        "| --- | --- | --- | --- |",
        *(
            f"| {cell(each.what)} | {cell(each.seen)} | {cell(each.wanted)} "
            f"| {'yes' if each.is_met else 'NO'} |"
            for each in found
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
