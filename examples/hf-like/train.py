"""Read the options, train, save: the loop is in the package `sentiment`."""

import argparse
import os
from dataclasses import fields
from pathlib import Path

import torch.distributed as dist
from sentiment.data import Reviews
from sentiment.training import Trainer, TrainingArguments


def main() -> None:
    parser = argparse.ArgumentParser()
    for field in fields(TrainingArguments):
        name = f"--{field.name.replace('_', '-')}"
        parser.add_argument(name, type=type(field.default), default=field.default)
    arguments = TrainingArguments(**vars(parser.parse_args()))

    dist.init_process_group("gloo")
    trainer = Trainer(arguments)
    accuracy = trainer.train()
    trainer.require_equal_weights()
    trainer.save(Path(os.environ.get("TRAINYARD_OUTPUT_MODEL", "model")))
    if dist.get_rank() == 0:
        print(trainer.sample(Reviews(3, seed=3)))
        print(f"final accuracy {accuracy:.4f} (ranks: {dist.get_world_size()})")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
