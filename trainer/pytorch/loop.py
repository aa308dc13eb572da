"""Trains a task from its last checkpoint to its model: the loop of all PyTorch programs."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainer.common.accelerators import OTHERS_HINT, PREDICTED, warn_of_emulation
from trainer.common.errors import TrainingError
from trainer.common.find_batch import found_batch, largest_batch
from trainer.common.messages import warn
from trainer.common.metrics import Metrics
from trainer.common.model_about import model_name, saved_seed
from trainer.common.options import recipe_of
from trainer.common.position import Position, TakenStep
from trainer.common.progress import Progress
from trainer.common.throughput import Throughput
from trainer.common.trackers import open_trackers
from trainer.data.pictures.predicted import find_files, tell_rows
from trainer.pytorch.average import Average
from trainer.pytorch.batch_norms import share_batch_norms
from trainer.pytorch.buffers import average_buffers
from trainer.pytorch.find_batch import holds, memory_told
from trainer.pytorch.finish import waiter, write_results
from trainer.pytorch.guard import Guard
from trainer.pytorch.keeper import Keeper, Trainable
from trainer.pytorch.layout import to_device
from trainer.pytorch.model_file import load_model
from trainer.pytorch.precision import autocast, make_scaler, require_units, take_step
from trainer.pytorch.profiling import Profiler
from trainer.pytorch.state import require_state
from trainer.pytorch.step_parts import StepParts
from trainer.pytorch.task import B, OptionsT, Part, Task
from trainer.pytorch.transfer import copied_ahead, each_tensor
from trainer.pytorch.whole_samples import seed_build

BEGINNING = "the network and what it begins with"


def run(task: Task[OptionsT, B]) -> None:
    """Train from where the last checkpoint left off, evaluate after every epoch, write the model.

    Raises TrainingError for what the user can correct, and Preempted, on all ranks at one step.
    """
    options, ranks = task.options, task.ranks
    model_name(task.program)
    require_units(options.precision, task.device)
    if options.predict is not None:
        _predict(task)
        return
    if options.find_batch:
        task.require_search()
    with memory_told("the data that training keeps there", hint=OTHERS_HINT):
        task.prepare()
    if task.num_batches < 1:
        message = "an epoch has no batch"
        raise TrainingError(message, hint=f"a smaller {task.batch_flag}, or more samples")
    if ranks.world.is_main:
        warn_of_emulation(options.precision, task.device.type)
    seed_build(options.seed)
    network = task.build()
    require_state(network)
    if options.model is not None:
        load_model(network, options.model, classes=task.about().get("classes"))
    if options.sync_batch_norm:
        share_batch_norms(network, ranks.strategy)
    with memory_told(BEGINNING, hint=OTHERS_HINT):
        to_device(network, task.device)
        training = Training(task, network)
    if options.find_batch:
        training.find_batch()
        return
    began_s = time.perf_counter()
    figures = training.run()
    split = task.main_figure.split
    write_results(
        training.result,
        ranks,
        task.device,
        training.keeper,
        {
            "precision": options.precision,
            "epochs": options.epochs,
            "steps": training.num_steps,
            "seed": options.seed,
            "parameters": sum(each.numel() for each in training.result.parameters()),
            "images_per_s": training.throughput.samples_per_s,
            "data_wait_s": training.throughput.data_wait_s,
            **task.summary(),
            **{f"{split}_{name}": value for name, value in figures.items()},
        },
        program=task.program,
        about=None if options.evaluate_only else {**task.about(), "seed": options.seed},
        began_s=began_s,
        hint=options.hint,
    )
    if ranks.world.is_main:
        _finish(task, training.result)


def _finish(task: Task[OptionsT, B], network: nn.Module) -> None:
    """Write what else the program leaves; a training that is over and saved does not fail by it."""
    try:
        with memory_told("the last predictions", hint=OTHERS_HINT):
            task.finish(network)
    except TrainingError as error:
        warn(str(error))


def _predict(task: Task[OptionsT, B]) -> None:
    """Predict the files of `--predict` by the saved model."""
    options = task.options
    files = find_files(options.predict, max_corrupt=options.max_corrupt)
    folder = task.ranks.run_dir.output("predictions")
    seed_build(saved_seed(options.saved, default=options.seed))
    with memory_told(PREDICTED, hint=OTHERS_HINT):
        tell_rows(task.predict(files, folder), files, folder, say=task.say)


class Training(Generic[OptionsT, B]):
    """Takes the steps and evaluations of a task; `result` is the network whose weights are its outcome."""

    def __init__(self, task: Task[OptionsT, B], network: nn.Module) -> None:
        options, ranks = task.options, task.ranks
        self._task = task
        self._network = network
        self._part = task.select(network)
        self._scaler = make_scaler(options.precision, task.device)
        optimizer = task.optimizer(self._part, self._scaler)
        # Groups with a rate of their own keep its ratio to the largest.
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        self._shares = [each / max(rates) if max(rates) else 1.0 for each in rates]
        self._wrapped, self._optimizer = ranks.strategy.wrap(
            self._part, optimizer, num_backwards=task.num_parts
        )
        self._ddp = self._wrapped if isinstance(self._wrapped, DistributedDataParallel) else None
        named = self._part.named_parameters() if self._ddp is not None else ()
        self._needed = [(name, each) for name, each in named if each.requires_grad]
        self._model = task.wrap(self._wrapped)
        self._average: Average | None = None
        self.result = network
        if task.average_decay is not None:
            self._average = Average(network, decay=task.average_decay)
            self.result = self._average.module
            self._part = task.select(self.result)
        stream = random.Random(f"{options.seed}/{task.stream}/{ranks.world.rank}")
        torch.manual_seed(stream.getrandbits(63))
        random.seed(stream.getrandbits(63))
        np.random.seed(stream.getrandbits(32))
        both = {"network": network, "average": self._average}
        trained = Trainable(
            network=nn.ModuleDict(both) if self._average else network,
            optimizer=self._optimizer,
            device=task.device,
            scaler=self._scaler,
        )
        recipe = recipe_of(options, program=task.program, **task.facts())
        self.keeper = Keeper(trained, ranks, options=options, recipe=recipe, rate=task.rate)
        self.throughput = Throughput(
            num_warmup_steps=task.num_warmup_steps, synchronise=waiter(task.device)
        )
        self._parts = StepParts(
            self._wrapped, self._optimizer, task.device, num_ranks=ranks.world.size
        )
        self.throughput.also(self._parts.take)
        self.num_steps = 0
        self._profiler = Profiler(
            ranks.run_dir,
            task.device,
            num_steps=options.profile if ranks.world.is_main else 0,
            say=task.say,
        )

    def run(self) -> dict[str, float]:
        """Train from the last checkpoint to the last step; gives the last evaluation's figures."""
        task, options, ranks = self._task, self._task.options, self._task.ranks
        position = self.keeper.restore(options.epochs)
        if options.evaluate_only and not position.step:
            task.require_weights()
        self._begin(position)
        num_left = 0 if options.evaluate_only else max(0, task.num_steps - position.step)
        self._profiler.plan(num_left)
        trackers = open_trackers(
            ranks.run_dir.outputs / "tensorboard",
            ranks.world,
            warn=warn,
            after_step=position.step,
            only_evaluates=options.evaluate_only,
        )
        figures: dict[str, float] = {}
        with (
            contextlib.closing(self.keeper),
            Metrics(
                ranks.run_dir.metrics,
                ranks.world,
                after_step=position.step,
                only_evaluates=options.evaluate_only,
                trackers=trackers,
                main=task.main_figure,
            ) as metrics,
            self._profiler,
        ):
            progress = Progress(
                metrics,
                ranks.world,
                self.throughput,
                log_every=options.log_every,
                num_batches=task.num_batches,
                num_epochs=math.ceil(task.num_steps / task.num_batches),
                num_steps=task.num_steps,
            )
            guard = Guard(
                ranks, task.device, self.keeper, on_loss=progress.on_loss, hint=options.hint
            )
            while True:
                is_over = options.evaluate_only or position.step >= task.num_steps
                if is_over or (position.epoch and not position.batch):
                    average_buffers(self._part, ranks.strategy, ranks.world)
                    self._part.eval()
                    with self._memory_of_evaluation():
                        figures = task.evaluate(self._part, guard, position)
                    require_finite(figures, hint=options.hint)
                    split = task.main_figure.split
                    progress.on_epoch(position, figures, split=split, shown=task.shown)
                if is_over:
                    self.num_steps = position.step
                    return figures
                with self._memory_of("a step"), self.throughput.training():
                    position = self._train_epoch(position, guard)

    def find_batch(self) -> None:
        """Say about the largest batch of which memory holds a step; weights end as they began."""
        task = self._task
        self._begin(Position())
        self._model.train()

        def step(number: int) -> None:
            part = task.trial(number)
            # A training has all parts of a step there, the next one and the one before (copied_ahead).
            others = [each_tensor(part.batch, torch.clone) for _ in range(task.num_parts + 1)]
            self._take_step([part] * task.num_parts, 0.0)
            del others

        found = largest_batch(
            lambda number: holds(step, number),
            least=task.least_batch,
            hint=task.less_memory,
            say=task.say,
        )
        text, summary = found_batch(found, task.batch_option, program=task.program)
        task.say(text)
        task.ranks.run_dir.write_summary(summary)

    def _begin(self, position: Position) -> None:
        """Let the task compute what it needs of the network, by the weights that were restored."""
        with memory_told(BEGINNING, hint=OTHERS_HINT):
            self._task.begin(self._network, position)

    def _memory_of(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Tell the batch where a GPU's memory does not hold what is done inside."""
        task, flag = self._task, self._task.batch_flag
        number = getattr(task.options, task.batch_option, None)
        if number is None:
            return memory_told(what, hint=OTHERS_HINT)
        hint = f"--find-batch finds a {flag} that fits"
        if type(task).trial is Task.trial:
            hint = f"a smaller {flag}"
        return memory_told(f"{what} of {flag} {number}", hint=hint)

    def _memory_of_evaluation(self) -> contextlib.AbstractContextManager[None]:
        """Tell how much an evaluation looks at, where the batch of a step is not what it takes."""
        of = self._task.evaluation
        if not of:
            return self._memory_of("an evaluation")
        return memory_told(f"an evaluation of {of}", hint=OTHERS_HINT)

    def _train_epoch(self, position: Position, guard: Guard) -> Position:
        """Take one step per global batch that is left of the epoch; each rank computes its part."""
        task = self._task
        self._model.train()
        parts = copied_ahead(task.batches(position), task.device)
        epoch = position.epoch
        while group := self._next_parts(parts):
            if position.epoch != epoch:
                raise wrong_number(task.num_batches, are_more=True)
            with self._parts.step():
                total, num_right = self._take_step(group, task.rate(position))
            self.throughput.step(sum(part.num_samples for part in group))
            samples = [sample for part in group for sample in part.samples]
            taken = TakenStep(
                step=position.step + 1,
                epoch=position.epoch + 1,
                batch=position.batch + 1,
                samples=samples,
            )
            position = position.after_batch(task.num_batches)
            self._profiler.step()  # before a checkpoint, which is no part of a step
            guard.step(position, total, len(samples), taken=taken, num_right=num_right)
            self.throughput.add_host(guard.take_host_s())
        if position.epoch == epoch and position.step < task.num_steps:
            raise wrong_number(task.num_batches, are_more=False)
        guard.settle()
        return position

    def _next_parts(self, parts: Iterator[Part[B]]) -> list[Part[B]]:
        """Wait for the parts of the next step; none at the end of the epoch."""
        with self.throughput.waiting():
            return list(itertools.islice(parts, self._task.num_parts))

    def _take_step(self, parts: Sequence[Part[B]], rate: float) -> tuple[Tensor, Tensor | None]:
        """Compute the gradients of all parts, take one step; gives the sums of losses and of right ones."""
        task = self._task
        for group, share in zip(self._optimizer.param_groups, self._shares, strict=True):
            group["lr"] = rate * share
        totals: list[Tensor] = []
        right: list[Tensor] = []
        for number, part in enumerate(parts, 1):
            with self._alone() if number < len(parts) else contextlib.nullcontext():
                with autocast(task.options.precision, task.device):
                    loss = task.loss(self._model, part)
                if number == 1:
                    self._optimizer.zero_grad()
                mean = loss.mean if len(parts) == 1 else loss.mean / len(parts)
                (mean if self._scaler is None else self._scaler.scale(mean)).backward()
            totals.append(loss.total.detach())
            right += [] if loss.num_right is None else [loss.num_right]
        require_gradients(self._needed)
        take_step(
            self._optimizer,
            strategy=task.ranks.strategy,
            scaler=self._scaler,
            clip=task.options.clip_norm,
        )
        if self._average is not None:
            self._average.update(self._network)
        return _sum(totals), _sum(right) if right else None

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        """Keep the gradients of a backward pass here: a later one of the step averages them."""
        return self._ddp.no_sync() if self._ddp is not None else contextlib.nullcontext()


def require_gradients(needed: Sequence[tuple[str, nn.Parameter]]) -> None:
    """Raise TrainingError where a step left out parameters, for whose gradients DDP waits."""
    if all(each.grad is not None for _, each in needed):
        return
    idle = [name for name, each in needed if each.grad is None]
    more = f" and {len(idle) - 1} more" if len(idle) > 1 else ""
    message = (
        f"the loss does not depend on `{idle[0]}`{more}, and DDP waits for the gradients of all"
    )
    hint = "requires_grad_(False) where it never learns, or --strategy horovod"
    raise TrainingError(message, hint=hint)


def require_finite(figures: Mapping[str, float], *, hint: str) -> None:
    """Raise TrainingError for a figure of an evaluation that is not finite, which no metric can be."""
    for name, value in figures.items():
        if not math.isfinite(value):
            message = f"evaluate() gives a figure `{name}` that is {value}"
            raise TrainingError(message, hint=hint)


def wrong_number(num_batches: int, *, are_more: bool) -> TrainingError:
    """Say that a task's batches are not as many as it said."""
    how = "more" if are_more else "fewer"
    message = (
        f"batches() gives {how} batches of an epoch than the task's num_batches, {num_batches}"
    )
    return TrainingError(message, hint="count a smaller last batch in both, or in neither")


def _sum(scalars: Sequence[Tensor]) -> Tensor:
    return scalars[0] if len(scalars) == 1 else torch.stack(list(scalars)).sum()
