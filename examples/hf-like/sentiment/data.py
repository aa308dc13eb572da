"""Makes short reviews and turns them into numbers."""

import random

import torch
from torch.utils.data import Dataset

GOOD = ("great", "lovely", "superb", "fast", "reliable")
BAD = ("awful", "broken", "slow", "noisy", "useless")
THINGS = ("camera", "kettle", "laptop", "chair", "lamp")
FILLERS = ("the", "this", "is", "really", "quite", "my", "new", "and", "it", "was")
WORDS = ("<pad>", "not", *GOOD, *BAD, *THINGS, *FILLERS)
LENGTH = 8


class Reviews(Dataset):
    """Reviews of one product each; `not` in front of a judgement turns it round."""

    def __init__(self, num_reviews: int, seed: int) -> None:
        self._reviews = [_review(random.Random(f"{seed}-{i}")) for i in range(num_reviews)]

    def __len__(self) -> int:
        return len(self._reviews)

    def text(self, index: int) -> str:
        return " ".join(self._reviews[index][0])

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        words, is_good = self._reviews[index]
        ids = [WORDS.index(word) for word in words] + [0] * (LENGTH - len(words))
        return torch.tensor(ids), torch.tensor(float(is_good))


def _review(random_of: random.Random) -> tuple[list[str], bool]:
    is_good, is_turned = random_of.random() < 0.5, random_of.random() < 0.3
    judgement = random_of.choice(GOOD if is_good else BAD)
    words = [*random_of.sample(FILLERS, random_of.randint(1, 3)), random_of.choice(THINGS)]
    words += ["not", judgement] if is_turned else [judgement]
    words += random_of.sample(FILLERS, random_of.randint(0, 2))
    return words, is_good != is_turned
