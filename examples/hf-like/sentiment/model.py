"""A classifier with one layer of attention."""

import torch
from torch import nn

from .data import LENGTH, WORDS


class Classifier(nn.Module):
    """Gives the logit of praise for each row of word numbers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), width, padding_idx=0)
        self.places = nn.Parameter(torch.zeros(LENGTH, width))
        self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states = self.layer(self.words(ids) + self.places)
        is_word = (ids != 0).unsqueeze(2)
        return self.head((states * is_word).sum(1) / is_word.sum(1)).squeeze(1)
