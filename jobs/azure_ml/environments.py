"""An image as Azure ML knows it: one version of an `environment`, named by what is in it."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from msgspec import Struct

# Of Azure ML's names.
_LONGEST_NAME = 200


class ImageVersion(Struct, frozen=True, kw_only=True):
    """The environment version of an image: the same name for the same image, whoever makes it."""

    name: str
    version: str
    body: dict[str, Any]

    def path(self, workspace: str) -> str:
        """Its path in Resource Manager, which is also the id that a job names."""
        return f"{workspace}/environments/{self.name}/versions/{self.version}"


def image_version(reference: str) -> ImageVersion:
    """The version of an image that a registry has (pure)."""
    repository = reference.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return ImageVersion(
        name=_name(repository),
        version=hashlib.sha256(reference.encode()).hexdigest()[:16],
        body={"properties": {"image": reference, "isAnonymous": False, "isArchived": False}},
    )


def _name(text: str) -> str:
    """What Azure ML allows in a name."""
    return f"trainyard-{re.sub(r'[^A-Za-z0-9_-]', '-', text)}"[:_LONGEST_NAME]
