"""Describes the origin of a model's version: run, data, code, image and final figures."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

from jobs.contracts.spec import Name, PathPart, Positive

# Written by whoever may write to the store, and printed: no control characters, no long texts.
_TEXT = re.compile(r"^[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{0,500}$(?!\n)")
_Text = Annotated[str, Meta(pattern=_TEXT.pattern)]
_Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]


class InputUsed(Struct, frozen=True, kw_only=True):
    """A dataset version that a run read."""

    dataset: Name
    version: Positive
    digest: _Sha256

    @property
    def ref(self) -> str:
        """The name and number by which a job file names the version."""
        return f"{self.dataset}@{self.version}"


class Lineage(Struct, frozen=True, kw_only=True):
    """Facts of the run that wrote a model; `code_digest` is None where the code is not here.

    `figures` are the run's final figures, the main one first. `is_changed` tells that the code
    differed from the commit.
    """

    run: PathPart
    stack: PathPart
    job: Name
    output: PathPart
    inputs: dict[_Text, InputUsed]
    code_digest: _Sha256 | None
    commit: Annotated[str, Meta(pattern=r"^[0-9a-f]{40,64}$(?!\n)")] | None
    is_changed: bool
    image: _Text
    image_digest: _Text | None
    figures: dict[_Text, float]


def fits(text: str) -> bool:
    """Tell whether a lineage may name a figure so."""
    return _TEXT.search(text) is not None
