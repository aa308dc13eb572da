"""Sentences of the documents that promise a figure or a word, each with what makes it so.

A new promise brings its row, in the module of its subject: the page, the sentence's words with `{}`
for each figure, and the constants. A figure that the code does not decide (a measurement, an example,
somebody else's limit) is listed with its reason instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TypeVar

from tests.documents.promises import of_azure, of_data, of_jobs, of_training
from tests.documents.promises.sentences import NoPromise, Promise

Row = TypeVar("Row")
_SUBJECTS = (of_jobs, of_data, of_azure, of_training)


def _by_page(tables: Sequence[Mapping[str, Sequence[Row]]]) -> dict[str, list[Row]]:
    pages = dict.fromkeys(chain.from_iterable(tables))
    return {page: [row for each in tables for row in each.get(page, ())] for page in pages}


PROMISES: dict[str, list[Promise]] = _by_page([each.PROMISES for each in _SUBJECTS])
NO_PROMISES: dict[str, list[NoPromise]] = _by_page([each.NO_PROMISES for each in _SUBJECTS])
