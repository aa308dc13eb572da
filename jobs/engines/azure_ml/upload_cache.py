"""Remembers what a workspace has already, so that an unchanged code or image costs no request.

An empty file for each; the folder may be deleted at any time. Versions never change, but somebody
may delete one: where Azure ML refuses a job, what was taken for known is looked at again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from jobs.host.private import make_folder


class Known:
    """Names of code uploads and of image versions, in a folder."""

    def __init__(self, workspace: Path) -> None:
        self._folder = workspace / "known"

    def has(self, name: str) -> bool:
        """Whether it was there when it was last looked at."""
        return (self._folder / name).exists()

    def add(self, name: str) -> None:
        """It is there."""
        # A disk that is full costs a request next time.
        with suppress(OSError):
            make_folder(self._folder)
            (self._folder / name).touch()

    def forget(self, name: str) -> None:
        """It may not be there."""
        (self._folder / name).unlink(missing_ok=True)
