"""Trains the classifier on all ranks, and keeps what `launch report` and `launch fetch` show."""

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from tabulate import tabulate
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from .data import Reviews
from .model import Classifier


@dataclass(frozen=True)
class TrainingArguments:
    """Options of a training; `batch_size` is that of all ranks together."""

    epochs: int = 4
    batch_size: int = 32
    learning_rate: float = 0.003
    width: int = 32


class Trainer:
    """One training on the ranks of the default process group."""

    def __init__(self, arguments: TrainingArguments) -> None:
        self.arguments = arguments
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = DistributedDataParallel(Classifier(arguments.width))
        self.optimizer = torch.optim.Adam(self.model.parameters(), arguments.learning_rate)

    def train(self) -> float:
        """Train; gives the accuracy on reviews that were not trained on."""
        train, test = Reviews(1024, seed=1), Reviews(256, seed=2)
        sampler = DistributedSampler(train, seed=0)
        batch_size = self.arguments.batch_size // self.world_size
        loader = DataLoader(train, batch_size, sampler=sampler)
        accuracy, step = 0.0, 0
        for epoch in range(1, self.arguments.epochs + 1):
            sampler.set_epoch(epoch)
            self.model.train()
            for ids, labels in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(self.model(ids), labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                step += 1
            accuracy = self.evaluate(test)
            self._log(step, epoch, accuracy)
        return accuracy

    @torch.no_grad()
    def evaluate(self, reviews: Reviews) -> float:
        """Share of the reviews that are told rightly; every rank takes its part of them."""
        self.model.eval()
        mine = [reviews[i] for i in range(self.rank, len(reviews), self.world_size)]
        ids, labels = (torch.stack(each) for each in zip(*mine, strict=True))
        right = ((self.model.module(ids) > 0) == labels.bool()).sum()
        dist.all_reduce(right)
        return right.item() / len(reviews)

    @torch.no_grad()
    def sample(self, reviews: Reviews, num_reviews: int = 3) -> str:
        """Table of the first reviews, and how surely each is praise."""
        ids = torch.stack([reviews[i][0] for i in range(num_reviews)])
        praise = self.model.module(ids).sigmoid().tolist()
        rows = [(reviews.text(i), f"{each:.0%}") for i, each in enumerate(praise)]
        return tabulate(rows, ("review", "praise"))

    def require_equal_weights(self) -> None:
        """Compare the weights of all ranks; end the program where they differ."""
        weights = sum(each.detach().double().sum() for each in self.model.parameters())
        of_ranks = [torch.zeros_like(weights) for _ in range(self.world_size)]
        dist.all_gather(of_ranks, weights)
        if torch.stack(of_ranks).unique().numel() != 1:
            raise SystemExit("error: ranks hold different weights")

    def save(self, folder: Path) -> None:
        """Write weights and configuration; rank 0 alone."""
        if self.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            save_file(self.model.module.state_dict(), folder / "model.safetensors")
            (folder / "config.json").write_text(json.dumps(asdict(self.arguments)))

    def _log(self, step: int, epoch: int, accuracy: float) -> None:
        if self.rank != 0:
            return
        print(f"epoch {epoch}: accuracy {accuracy:.4f}")
        if folder := os.environ.get("TRAINYARD_RUN_DIR"):
            line = {"ts": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "step": step}
            line |= {"epoch": epoch, "split": "test", "name": "accuracy", "value": accuracy}
            with open(Path(folder) / "metrics.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
