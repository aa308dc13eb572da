"""Finishes a PyTorch training: compares the ranks' weights, writes model and summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from torch import nn

from trainer.common.agreement import Diverged
from trainer.common.errors import TrainingError
from trainer.common.model_about import model_name
from trainer.pytorch.buffers import copy_of_main
from trainer.pytorch.keeper import Keeper
from trainer.pytorch.model_file import write_model
from trainer.pytorch.state import weights_digest
from trainer.pytorch.strategy import Ranks, Strategy


def write_results(
    network: nn.Module,
    ranks: Ranks,
    device: torch.device,
    keeper: Keeper,
    figures: Mapping[str, object],
    *,
    program: str,
    about: Mapping[str, object] | None,
    began_s: float,
    hint: str,
) -> None:
    """Write the model, then the summary (`figures` and what all programs tell); a collective.

    `about` describes the model (trainer.pytorch.model_file); None for one that was not trained.
    `began_s` is of time.perf_counter. Raises TrainingError, on all ranks, where a checkpoint that had
    to be written was not, or ranks ended with different weights.
    """
    keeper.finish(hint=hint)
    if not all(bool(torch.isfinite(each).all()) for each in network.parameters()):
        message = "training has diverged: weights are not finite after the last step"
        raise Diverged(message, hint=hint)
    # Some buffers move in an evaluation, too, as observers of quantisation do.
    copy_of_main([*network.buffers()], ranks.strategy, ranks.world)
    digests = gather_digests(network, ranks.strategy, device)
    if ranks.world.is_main:
        if about is not None:
            name = model_name(program)
            path = ranks.run_dir.output("model") / f"{name}.safetensors"
            write_model(network, path, {"program": program, **about})
        ranks.run_dir.write_summary(
            {
                "program": program,
                "strategy": ranks.strategy.name,
                "world_size": ranks.world.size,
                "device": device.type,
                **figures,
                "train_s": round(time.perf_counter() - began_s, 3),
                "weights_sha256": digests,
                **keeper.figures(),
            }
        )
    # No rank says that all is well before the model is on disk.
    ranks.strategy.barrier()


def waiter(device: torch.device) -> Callable[[], None]:
    """Give a function that waits until the device has finished its queue."""
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None


def gather_digests(network: nn.Module, strategy: Strategy, device: torch.device) -> list[str]:
    """Give the SHA-256 of every rank's weights; raises TrainingError where two differ."""
    mine = torch.tensor(list(weights_digest(network)), dtype=torch.uint8, device=device)
    digests = [bytes(part.tolist()).hex() for part in strategy.gather(mine)]
    for rank, other in enumerate(digests):
        if other != digests[0]:
            message = f"rank {rank} ended with other weights than rank 0"
            raise TrainingError(message)
    return digests
