"""Tells images of a registry from the folders of images/."""

from __future__ import annotations


def is_reference(image: str) -> bool:
    """Tell whether an image is one of a registry, and no folder of images/."""
    return any(mark in image for mark in "/:@")
