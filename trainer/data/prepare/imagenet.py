"""Makes ImageNet's (ILSVRC 2012) class folders from its three archives.

    ILSVRC2012_img_train.tar       a tar of a tar of pictures per class, `n01440764.tar`
    ILSVRC2012_img_val.tar         pictures `ILSVRC2012_val_00000001.JPEG`, ...
    ILSVRC2012_devkit_t12.tar.gz   says which class each of those shows
    -> train/n01440764/*.JPEG, val/n01440764/*.JPEG

The class tars are read where they lie in the large one: nothing is written but the pictures.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from trainer.common.errors import TrainingError
from trainer.common.messages import few
from trainer.data.archives.file import GET_AGAIN, ArchiveFile, Inflated, Section
from trainer.data.archives.member_names import refusal
from trainer.data.archives.tar import Member, tar_members
from trainer.data.prepare.published import Checksum
from trainer.data.prepare.unpack import other_archive

DEVKIT, VAL, TRAIN = (
    "ILSVRC2012_devkit_t12.tar.gz",
    "ILSVRC2012_img_val.tar",
    "ILSVRC2012_img_train.tar",
)
_CLASS_TAR = re.compile(r"(n[0-9]{8})\.tar")
_VAL_PICTURE = re.compile(r"ILSVRC2012_val_([0-9]{8})\.JPEG")
_META = "data/meta.mat"
_TRUTH = "data/ILSVRC2012_validation_ground_truth.txt"
_MOST_DEVKIT_BYTES = 256 << 20
# ImageNet's holds 1,860 structs of 8 short fields.
_MOST_META_BYTES = 8 << 20


def read_val_classes(path: Path, expected: Checksum) -> list[str]:
    """Read the devkit: the class, `n01440764`, of each validation picture in their order.

    Raises TrainingError where the archive is not the expected one or does not say it.
    """
    kept: dict[str, bytes] = {}
    with ArchiveFile(path, expected.algorithm) as source:
        for member in tar_members(Inflated(source, _MOST_DEVKIT_BYTES)):
            wanted = [end for end in (_META, _TRUTH) if f"/{member.name}".endswith(f"/{end}")]
            if wanted:
                kept[wanted[0]] = b"".join(member.content)
        found = source.digest()
    if found != expected.digest:
        raise other_archive(path, found, expected)
    for name in (_META, _TRUTH):
        if name not in kept:
            message = f"`{path.name}` holds no `{name}`"
            raise TrainingError(message, hint="the devkit of tasks 1 and 2")
    try:
        return _classes(kept[_META], kept[_TRUTH])
    except (TrainingError, ValueError, KeyError, TypeError) as error:
        message = f"`{path.name}` cannot be used: {error}"
        raise TrainingError(message, hint=GET_AGAIN) from None


def _classes(meta: bytes, truth: bytes) -> list[str]:
    names = read_synsets(meta)
    for name in names.values():
        if not _CLASS_TAR.fullmatch(f"{name}.tar"):
            message = f"meta.mat has a class {name!a}"
            raise ValueError(message)
    return [names[int(line)] for line in truth.decode("ascii").split()]


def read_synsets(meta: bytes) -> dict[int, str]:
    """Map the numbers of the classes in `meta.mat` to their names, as `n01440764`.

    Raises TrainingError for a file that is damaged or too large, and where SciPy is missing.
    """
    if importlib.util.find_spec("scipy") is None:
        message = "its meta.mat is read by SciPy, which this Python has not"
        raise TrainingError(message)
    if len(meta) > _MOST_META_BYTES:
        message = f"it is a damaged MATLAB file: {len(meta)} bytes"
        raise TrainingError(message)
    program = str(Path(__file__).with_name("meta_mat.py"))
    done = subprocess.run(
        [sys.executable, "-P", program], input=meta, capture_output=True, check=False
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        message = f"it is a damaged MATLAB file: {said or f'exit code {done.returncode}':.200}"
        raise TrainingError(message)
    return dict(json.loads(done.stdout))


def train_files(source: ArchiveFile) -> Iterator[Member]:
    """Give the training pictures; raises TrainingError for an archive of another layout."""
    for packed in tar_members(source):
        matched = _CLASS_TAR.fullmatch(packed.name)
        if not matched:
            message = f"`{source.name}` holds `{packed.name}`, not tar archives of classes"
            raise TrainingError(message, hint="n01440764.tar and so on, without a folder")
        name = f"{source.name}:{packed.name}"
        for member in tar_members(Section(source, name, packed.bytes)):
            if not member.name.endswith(".JPEG") or "/" in member.name:
                raise refusal(name, member.name, "a member is not a picture of a class")
            member.name = f"train/{matched[1]}/{member.name}"
            yield member


def val_files(classes: Sequence[str]) -> Callable[[ArchiveFile], Iterator[Member]]:
    """Give the reader of the validation pictures, which puts each into its class's folder."""

    def files(source: ArchiveFile) -> Iterator[Member]:
        seen: set[int] = set()
        for member in tar_members(source):
            matched = _VAL_PICTURE.fullmatch(member.name.rpartition("/")[2])
            number = int(matched[1]) if matched else 0
            if not matched or not 1 <= number <= len(classes):
                raise refusal(source.name, member.name, "the devkit knows no such picture")
            if number in seen:
                raise refusal(source.name, member.name, "two members are the same picture")
            seen.add(number)
            member.name = f"val/{classes[number - 1]}/{matched[0]}"
            yield member
        if len(seen) != len(classes):
            message = f"`{source.name}` holds {len(seen)} pictures, the devkit names {len(classes)}"
            raise TrainingError(message, hint=GET_AGAIN)

    return files


def require_same_classes(folder: Path) -> None:
    """Raise TrainingError where training and validation pictures are not of the same classes."""
    train, val = (
        {entry.name for entry in (folder / split).iterdir()} for split in ("train", "val")
    )
    if train != val:
        odd = few(sorted(train ^ val))
        message = f"train and val have other classes: {odd} in one of them only"
        raise TrainingError(message, hint="take the three archives of one edition")
