"""Chooses the image of a Batch AI job: its own, or that of ours which has its framework."""

from __future__ import annotations

import re
from contextlib import suppress

from jobs.contracts.errors import LaunchError
from jobs.jobfile.script import read_script
from jobs.launching.imports.batchai_toolkits import Program
from jobs.launching.imports.draft import Draft, Project
from jobs.launching.imports.leaves import Place

# Images of Batch AI's time, which have no Python that ranks could be started by.
_AGED = re.compile(
    r"(?:docker\.io/|index\.docker\.io/)?(?:pytorch/pytorch|tensorflow/tensorflow|batchaitraining/[\w.-]+|"
    r"horovod/horovod|microsoft/(?:cntk|samples-\w+)|chainer/chainer|caffe2ai/caffe2|bvlc/caffe)(?:[:@].*)?\Z"
)
_REFERENCE = re.compile(
    r"[a-z0-9][a-z0-9._-]*(?::[0-9]{1,5})?(?:/[a-z0-9][a-z0-9._-]*)*(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?\Z"
)
_SHM = re.compile(r"([0-9]{1,15}) *([bkmgBKMG]?)(?:i?[bB])?\Z")
_MOST_SHM = 999_999_999  # of any unit, in a job file
_CONTAINER_LAUNCHERS = ("none", "torch", "horovod")


def read_image(body: Place, draft: Draft, project: Project, program: Program) -> None:
    """Read `containerSettings`: the image that the job runs in, and the size of its shared memory."""
    settings = body.section("containerSettings")
    draft.image = _own_image(body, draft, program)
    registry = settings.section("imageSourceRegistry") if settings else None
    if settings and (size := settings.take_text("shmSize")):
        _read_shm_size(draft, *size)
    if registry is None:
        return
    image, server = registry.take_text("image"), registry.take_text("serverUrl")
    login = registry.section("credentials")
    for leaf in login.leaves() if login else ():
        leaf.refused(
            "nodes pull by their cluster's identity: copy the image into the stack's registry "
            "(az acr import --name REGISTRY --source IMAGE --username NAME), and name it there"
        )
    if image is None:
        return
    host = re.sub(r"\Ahttps?://", "", server[0]).strip("/") if server else ""
    reference = image[0] if not host or image[0].startswith(f"{host}/") else f"{host}/{image[0]}"
    places = [each[1] for each in (image, server) if each]
    became, reason = choose_image(reference, draft, project)
    for place in places:
        place.refused(reason) if reason else place.converted(became)


def choose_image(reference: str, draft: Draft, project: Project) -> tuple[str, str]:
    """Choose between a job's own image and ours; gives what it became, or why it was refused."""
    if _AGED.match(reference) and not project.vault.holds(reference):
        return (
            f"image: {draft.image} (the old one has no Python 3.9 and no CUDA of today's GPUs)",
            "",
        )
    if not _REFERENCE.match(reference) or project.vault.holds(reference):
        return "", f"it is no reference of an image: the job has {draft.image}; set `image`"
    if draft.launcher not in _CONTAINER_LAUNCHERS:
        draft.remarks.append(f"On Azure, its own image: --set image={reference}")
        return "", (
            f"this machine starts no ranks of `{draft.launcher}` in a container: the job has "
            f"{draft.image}; on Azure add --set image={reference}"
        )
    draft.image = reference if "/" in reference or ":" in reference else f"{reference}:latest"
    return "image", ""


def _own_image(body: Place, draft: Draft, program: Program) -> str:
    """Choose an image of ours by the toolkit, and where that leaves it open by the script."""
    if body.get("tensorFlowSettings") and program.launcher in ("none", "tensorflow"):
        return "tensorflow"
    if program.launcher == "torch" or body.get("pyTorchSettings"):
        return "pytorch"
    if draft.script is not None and draft.script.suffix == ".py":
        with suppress(LaunchError):
            return read_script(draft.script, draft.script.name).image
    container = body.get("containerSettings")
    named = " ".join(str(each.value) for each in container.leaves()) if container else ""
    return "tensorflow" if re.search(r"tensorflow|keras", named) else "pytorch"


def _read_shm_size(draft: Draft, text: str, place: Place) -> None:
    found = _SHM.match(text.strip())
    if found is None or not int(found[1]):
        place.refused("it is no size such as 8g: set `shm_size`")
        return
    number, unit = int(found[1]), found[2].lower()
    if unit in ("", "b"):
        number, unit = max(1, number >> 10), "k"
    if number > _MOST_SHM:
        place.refused("it is more than any node has: set `shm_size`")
        return
    draft.shm_size = f"{number}{unit}"
    place.converted("shm_size")
