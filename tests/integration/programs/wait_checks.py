"""Counts what would make the host wait for a GPU within steps of each program, on a made-up GPU -> JSON.

Tensors are fake: they know that they are on `cuda:0`, and nothing is computed. Whoever reads one, or
copies one from or to memory that is not pinned, would wait. Mask R-CNN asks its own tensors for their
sizes, so that it steps on the CPU, and its copies are looked at alone.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from tests.integration.programs.one_rank import alone
from trainer.common.options import parse_options
from trainer.common.position import Position
from trainer.common.rundir import RunDir
from trainer.data.synthesize.coco import make_coco
from trainer.data.synthesize.digits import make_default_digits
from trainer.data.synthesize.stripes import INSECTS, make_pictures
from trainer.pytorch import classifier, hymenoptera, maskrcnn, mnist, own
from trainer.pytorch import task as task_module
from trainer.pytorch.guard import Guard
from trainer.pytorch.loader import Loader, _pixel_scale
from trainer.pytorch.loop import Training
from trainer.pytorch.maskrcnn_model import build_network
from trainer.pytorch.maskrcnn_waits import _channels
from trainer.pytorch.task import Task
from trainer.pytorch.transfer import _copying, copied_ahead

GPU = torch.device("cuda", 0)
aten = torch.ops.aten
# Their results' sizes depend on values: the host waits for these.
SIZED = {aten.nonzero, aten.masked_select, aten._unique2, aten.unique_dim}
TOLIST = Tensor.tolist
HOLDS = (f"{torch.__path__[0]}/", f"{Path(contextlib.__file__).parent}/contextlib")


class Waits(TorchDispatchMode):
    """Counts the operations for which a host waits, by the file that asks for them.

    `on_gpu` tells which tensors count as a GPU's.
    """

    def __init__(self, device: torch.device = GPU) -> None:
        super().__init__()
        self.found: collections.Counter[str] = collections.Counter()
        self.pinned: set[int] = set()
        self.learning: list[Tensor] = []
        self._device = device

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        packet = func.overloadpacket
        if packet is aten._local_scalar_dense:
            if self._has(args[0]):
                self._note(packet.__name__)
            if isinstance(args[0], FakeTensor):
                return 0.3 if args[0].is_floating_point() else 1
        is_mask = packet is aten.index and any(
            each is not None and each.dtype == torch.bool for each in args[1]
        )
        if (packet in SIZED or is_mask) and self._has(args[0]):
            self._note(packet.__name__)
        if packet is aten._to_copy:
            self._copy(func, args[0], given.get("device"), is_free=given.get("non_blocking"))
        if packet is aten.copy_:
            is_free = args[2] if len(args) > 2 else given.get("non_blocking")
            self._copy(func, args[1], args[0].device, is_free=is_free)
        if packet.__name__.startswith(("_fused_", "_amp_")):
            return None  # they change their arguments alone, and there are no fake ones
        made = func(*args, **given)
        if given.get("pin_memory"):
            self.pin(made)
        return made

    def pin(self, tensor: Tensor) -> Tensor:
        """Note that the tensor's memory is pinned."""
        self.pinned.add(tensor.untyped_storage()._cdata)
        self.kept = [*getattr(self, "kept", ()), tensor]  # no other gets its place
        return tensor

    def give_gradients(self) -> None:
        """Stand for a backward pass, whose kernels wait for nothing: its engine wants a real GPU."""
        for each in self.learning:
            each.grad = torch.zeros_like(each)

    def _has(self, tensor: Tensor) -> bool:
        return tensor.device.type == self._device.type

    def _copy(
        self, func: Any, source: Tensor, to: torch.device | None, *, is_free: bool | None
    ) -> None:
        if to is None or torch.device(to).type == source.device.type or self._device.type == "cpu":
            return
        is_pinned = source.device.type == "cuda" or source.untyped_storage()._cdata in self.pinned
        if not (is_free and is_pinned):
            self._note(func.overloadpacket.__name__)

    def counting(self) -> Callable[[Tensor], list[Any]]:
        """Give a `tolist` that counts: a CPU's dispatches nothing."""

        def tolist(tensor: Tensor) -> list[Any]:
            self._note("tolist")
            return TOLIST(tensor)

        return tolist

    def _note(self, name: str) -> None:
        """Count it for the innermost file that is not PyTorch's, nor this one."""
        frame = sys._getframe(1)
        while frame.f_back and (
            frame.f_code.co_filename.startswith(HOLDS)
            or frame.f_code.co_qualname.startswith("Waits.")
        ):
            frame = frame.f_back
        path = Path(frame.f_code.co_filename)
        place = "torchvision/" if "torchvision" in path.parts else ""
        self.found[f"{place}{path.name}: {name}"] += 1


class Stream:
    """A stream of the made-up GPU."""

    def __init__(self, _device: object = None) -> None:
        pass

    said: ClassVar[list[str]] = []
    num_events = 0

    def record_event(self) -> int:
        """Give the number of a batch that was copied."""
        self.num_events += 1
        self.said.append(f"copied {self.num_events}")
        return self.num_events

    def wait_event(self, event: int) -> None:
        """Note which copy is waited for."""
        self.said.append(f"waits for {event}")


def copied(tensor: Tensor, _memo: object) -> Tensor:
    """Copy a fake tensor; PyTorch's own way would read memory that is none."""
    made = tensor.detach().clone()
    is_weight = isinstance(tensor, nn.Parameter)
    return nn.Parameter(made, tensor.requires_grad) if is_weight else made


def pinned_loader(seen: Waits, *given: Any, pin_memory: bool, **named: Any) -> Iterator[Any]:
    """Load as DataLoader, which pins on a thread where there is a GPU."""
    for pair in DataLoader(*given, **named):
        tensors = [seen.pin(each) for each in pair if isinstance(each, Tensor)]
        yield [*tensors, *pair[len(tensors) :]] if pin_memory else pair


@contextlib.contextmanager
def made_up_gpu() -> Iterator[Waits]:
    """Let tensors and programs be on a GPU that is none."""
    from torch.cuda.amp import common

    seen = Waits()
    cuda = torch.cuda
    patches: list[tuple[Any, str, Any]] = [
        # Threads of decoders may not share the mode of fake tensors.
        (Loader, "_fill", lambda *_: None),
        (torch.Tensor, "backward", lambda _: seen.give_gradients()),
        (task_module, "pick_device", lambda *_: GPU),
        (torch.Tensor, "pin_memory", lambda tensor, *_: seen.pin(tensor)),
        (FakeTensor, "__deepcopy__", copied),
        (own, "DataLoader", lambda *given, **named: pinned_loader(seen, *given, **named)),
        (torch.Tensor, "record_stream", lambda *_: None),
        (torch.random, "fork_rng", lambda *_: contextlib.nullcontext()),
        (cuda, "Stream", Stream),
        (cuda, "stream", lambda _: contextlib.nullcontext()),
        (cuda, "current_stream", Stream),
        (cuda, "synchronize", lambda *_: None),
        (cuda, "is_bf16_supported", lambda *_, **__: True),
        (common, "amp_definitely_not_available", lambda: False),
    ]
    before = [(place, name, getattr(place, name)) for place, name, _ in patches]
    _pixel_scale.cache_clear()
    _copying.cache_clear()
    for place, name, value in patches:
        setattr(place, name, value)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), seen:
            yield seen
    finally:
        for place, name, value in before:
            setattr(place, name, value)
        _pixel_scale.cache_clear()
        _copying.cache_clear()


def ranks_here(folder: Path) -> Any:
    """One rank alone."""
    return alone(RunDir.from_environment({"TRAINYARD_RUN_DIR": str(folder)}))


def steps(task: Task[Any, Any], seen: Waits, device: torch.device) -> dict[str, int]:
    """Take three steps, of which the first may make constants; gives what waits in the others."""
    task.prepare()
    with torch.device(device):
        network = task.build()
    training = Training(task, network)
    training._begin(Position())
    guard = Guard(task.ranks, device, training.keeper, on_loss=lambda *_: None, hint="")
    training._model.train()
    seen.learning = [each for each in training._model.parameters() if each.requires_grad]
    parts = copied_ahead(task.batches(Position()), device)
    for number in range(3):
        if number == 1:
            seen.found.clear()
        group = training._next_parts(parts)
        assert group
        total, right = training._take_step(group, 0.01)
        samples = sum(len(part.samples) for part in group)
        if device.type == "cuda":
            guard._report(total.detach(), samples, *(() if right is None else (right,)))
            guard._report(torch.zeros(()), 1)  # what `check` reports in an evaluation
    return dict(seen.found)


class Squares:
    """Samples of an own training."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.full((4,), float(index)), torch.tensor([float(index**2)])


SQUARES = own.Own(
    name="squares",
    build=lambda: nn.Linear(4, 1),
    data=lambda _: (Squares(), Squares()),
    loss=nn.functional.mse_loss,
    figures=lambda outputs, targets: {"close": (outputs - targets).abs() < 1},
    main="close",
)


def cases(folder: Path) -> dict[str, tuple[type[Task[Any, Any]], Any]]:
    """Each program, and each option that does something in a step."""
    make_pictures(
        folder / "insects", num_classes=2, num_train=24, num_val=4, size=40, seed=2, names=INSECTS
    )
    digits = str(make_default_digits(num_train=300, num_test=100, seed=1))
    insects = ("--data", str(folder / "insects"), "--image-size", "32", "--batch-per-rank", "4")
    transfer = (*insects, "--weights", "none")
    small = (*insects, "--network", "resnet18", "--warmup-epochs", "0")
    mixed = ("--mixup", "0.2", "--cutmix", "1", "--ema", "0.9", "--clip-norm", "1")
    programs: dict[str, tuple[Any, Any, Sequence[str]]] = {
        "mnist": (mnist.Digits, mnist.Options, ("--data", digits)),
        "mnist, fp16": (mnist.Digits, mnist.Options, ("--data", digits, "--precision", "fp16")),
        "head": (hymenoptera.Transfer, hymenoptera.Options, (*transfer, "--ema", "0.9")),
        "all": (hymenoptera.Transfer, hymenoptera.Options, (*transfer, "--train", "all")),
        "bf16, mixed, averaged": (*CLASSIFIER, (*small, "--precision", "bf16", *mixed)),
        "accumulated": (*CLASSIFIER, (*small, "--accumulate", "2", "--loss", "bce")),
        "adamw": (*CLASSIFIER, (*small, "--optimizer", "adamw")),
        "lamb": (*CLASSIFIER, (*small, "--optimizer", "lamb", "--label-smoothing", "0")),
        "fp16": (*CLASSIFIER, (*small, "--precision", "fp16", "--clip-norm", "1")),
        "fp16, adamw": (*CLASSIFIER, (*small, "--precision", "fp16", "--optimizer", "adamw")),
        "fp16, lamb": (*CLASSIFIER, (*small, "--precision", "fp16", "--optimizer", "lamb")),
        "noise": (*CLASSIFIER, (*small[2:], "--data", "random", "--num-images", "16")),
        "own": (
            functools.partial(own.OwnTask, own=SQUARES),
            own.Options,
            ("--batch-size", "4", "--accumulate", "2", "--ema", "0.9"),
        ),
    }
    return {
        name: (
            task,
            parse_options(options, [*arguments, "--workers", "0"] if name == "own" else arguments),
        )
        for name, (task, options, arguments) in programs.items()
    }


CLASSIFIER = (functools.partial(classifier.Classifier, program="small"), classifier.Options)


def of_programs(folder: Path, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """What waits in steps of these programs, or of all that can be stepped through without values."""
    found, there = {}, cases(folder)
    for name in names or there:
        task, options = there[name]
        with made_up_gpu() as seen:
            found[name] = steps(task(options, ranks_here(folder)), seen, GPU)
    return found


def of_detector(folder: Path) -> dict[str, object]:
    """What waits within Mask R-CNN on its own tensors, and in copies of its samples."""
    make_coco(folder / "shapes", num_train=12, num_val=2, seed=1)
    arguments = ("--data", str(folder / "shapes"), "--backbone", "resnet18", "--image-size", "32")
    arguments += ("--backbone-weights", "none", "--regions-per-image", "4", "--device", "cpu")
    options = parse_options(maskrcnn.Options, arguments)
    task = maskrcnn.MaskRcnn(options, ranks_here(folder))
    seen = Waits(torch.device("cpu"))
    with seen, mock.patch.object(Tensor, "tolist", seen.counting()):
        within = steps(task, seen, torch.device("cpu"))
    with made_up_gpu() as seen:
        task = maskrcnn.MaskRcnn(replace(options, device="auto"), ranks_here(folder))
        task.prepare()
        parts = copied_ahead(task.batches(Position()), GPU)
        part = next(parts)
        devices = {each.device.type for sample in part.batch for each in sample.target.values()}
        copies = dict(seen.found)
    scaled = waits_of_transform(build_network(task.design, is_pretrained=False).transform)
    return {"within": within, "copies": copies, "devices": sorted(devices), "scaled": scaled}


def waits_of_transform(transform: nn.Module) -> list[int]:
    """How often a made-up GPU is waited for while two pictures are scaled, for the first time and again."""
    found = []
    with made_up_gpu() as seen:
        _channels.cache_clear()
        for _ in range(2):
            seen.found.clear()
            images = [torch.zeros(3, 60, 80 + 10 * each, device=GPU) for each in range(2)]
            targets = [
                {
                    "boxes": torch.zeros(2, 4, device=GPU),
                    "masks": torch.zeros(2, *each.shape[1:], dtype=torch.uint8, device=GPU),
                }
                for each in images
            ]
            transform(images, targets)
            found.append(sum(seen.found.values()))
        _channels.cache_clear()
    return found


def ahead() -> list[str]:
    """In which order batches are copied and computed on."""
    with made_up_gpu():
        Stream.said.clear()
        for number, batch in enumerate(
            copied_ahead(({"x": torch.zeros(2)} for _ in range(3)), GPU), 1
        ):
            assert batch["x"].device == GPU
            Stream.said.append(f"computes {number}")
    return Stream.said


def main(names: Sequence[str]) -> None:
    """Print what was found of these programs, or of all, and the rest as JSON.

    What is told here of a wait by hand shows that each kind is seen.
    """
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        found = {"programs": of_programs(Path(name), names), "detector": of_detector(Path(name))}
    found["ahead"] = ahead()
    with made_up_gpu() as seen:
        there = torch.zeros(3, device=GPU)
        there.sum().item()
        there.cpu()
        torch.tensor([1.0]).to(GPU)
        torch.tensor([1.0]).to(GPU, non_blocking=True)
        torch.tensor([1.0]).pin_memory().to(GPU)
        there.copy_(torch.zeros(3))
        bool(there.any())
        # None of these: pinned, within the GPU, or made there.
        torch.tensor([1.0]).pin_memory().to(GPU, non_blocking=True)
        there.add_(1)
        torch.full((2,), 3.0, device=GPU)
        found["by_hand"] = dict(seen.found)
    print(json.dumps(found))
