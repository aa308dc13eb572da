"""The environment of Checkov, which cannot share a lock with this project, and what it is shown of images."""

from __future__ import annotations

import re
from pathlib import Path

from jobs.images.recipes import VARIANTS, read_recipe
from jobs.images.runtimes import list_images
from tests.environments.laying import lay_environment

LOCK = Path(__file__).with_name("checkov.txt")

# Breaks rules of Checkov, one a line.
BAD = """\
FROM debian:latest
MAINTAINER nobody
ADD . /app
EXPOSE 22
WORKDIR app
RUN sudo apt update
RUN curl --insecure https://example.com/install.sh | sh
RUN pip install --trusted-host example.com torch
USER root
"""
BROKEN = {
    *("CKV_DOCKER_1", "CKV_DOCKER_2", "CKV_DOCKER_4", "CKV_DOCKER_6", "CKV_DOCKER_7"),
    *("CKV_DOCKER_8", "CKV_DOCKER_9", "CKV_DOCKER_10"),
    *("CKV2_DOCKER_1", "CKV2_DOCKER_2", "CKV2_DOCKER_4"),
}


def checkov_environment(project: Path) -> Path:
    """The folder of the environment; made from checkov.txt once per machine and lock.

    Raises EnvironmentFailure where the package index is out of reach.
    """
    return lay_environment(LOCK, project, what="Checkov")


def lay_dockerfiles(folder: Path, project: Path) -> set[str]:
    """Write each image's Dockerfile into a folder of its own, and a bad one; gives the images' folders.

    As the engine builds it: with the bases of the variant filled in.
    """
    texts = {"bad": BAD}
    for image in list_images(project):
        for variant in VARIANTS:
            recipe = read_recipe(image, variant, project)
            text = recipe.text
            for name, value in recipe.arguments.items():
                text = text.replace(f"FROM ${{{name}}}", f"FROM {value}")
            filled_in = re.sub(r"^#checkov:skip=CKV_DOCKER_7:.*\n", "", text, flags=re.MULTILINE)
            texts[f"{image}-{variant}"] = filled_in
    for name, text in texts.items():
        (folder / name).mkdir()
        (folder / name / "Dockerfile").write_text(text)
    return texts.keys() - {"bad"}
