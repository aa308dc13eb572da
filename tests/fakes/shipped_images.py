"""Lays the images that the project brings into a project of a test's own, without those of its user."""

from __future__ import annotations

import shutil
from pathlib import Path

IMAGES = Path(__file__).parents[2] / "images"
SHIPPED = ("pytorch", "tensorflow", "tensorflow-keras2")


def copy_images(project: Path) -> None:
    """Copy images/ into `project`, but for the folders of images that do not come with it."""
    folder = project / "images"
    folder.mkdir(parents=True)
    for path in IMAGES.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
        elif path.name in ("horovod", *SHIPPED):
            shutil.copytree(path, folder / path.name)
