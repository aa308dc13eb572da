"""Makes archives laid out as ImageNet's (ILSVRC 2012), of any size; contents are random bytes."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.seeds import dice
from trainer.data.prepare.imagenet import DEVKIT, TRAIN, VAL


def class_names(count: int) -> list[str]:
    """Give as many class names as ImageNet's are."""
    return [f"n{1440764 + 7 * number:08}" for number in range(count)]


def write_archives(
    folder: Path,
    *,
    num_classes: int,
    num_train: int,
    num_val: int,
    sizes: Sequence[int] = (700, 3000, 1536),
    pictures: Iterator[bytes] | None = None,
) -> dict[str, bytes | int]:
    """Write the three archives and SUMS; gives what they must unpack to.

    Pictures of a class in training, pictures in all for validation. Sizes are taken in turn. What is
    given are contents, or sizes where a picture is larger than 64 kB.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = class_names(num_classes)
    expected: dict[str, bytes | int] = {}
    pictures = pictures or _pictures(sizes)
    with tarfile.open(folder / TRAIN, "w") as outer:
        for name in names:
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as inner:
                for number in range(num_train):
                    picture = next(pictures)
                    _add(inner, f"{name}_{number}.JPEG", picture)
                    expected[f"train/{name}/{name}_{number}.JPEG"] = _kept(picture)
            _add(outer, f"{name}.tar", packed.getvalue())
    draw = dice(1)
    labels = [*range(num_classes), *(draw.randrange(num_classes) for _ in range(num_val))][:num_val]
    draw.shuffle(labels)
    with tarfile.open(folder / VAL, "w") as archive:
        for number, label in enumerate(labels, 1):
            picture = next(pictures)
            name = f"ILSVRC2012_val_{number:08}.JPEG"
            _add(archive, name, picture)
            expected[f"val/{names[label]}/{name}"] = _kept(picture)
    write_devkit(folder / DEVKIT, names, labels)
    write_sums(folder)
    return expected


def write_devkit(path: Path, names: Sequence[str], labels: Sequence[int]) -> None:
    """Write the development kit: meta.mat as SciPy writes it, and the labels counted from 1."""
    import numpy as np
    from scipy.io import savemat

    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("children", "O")]
    synsets = np.zeros((len(names) + 1, 1), dtype=fields)
    for number, name in enumerate(names, 1):
        synsets[number - 1, 0] = (float(number), name, f"thing, Ding {number}", np.zeros((0, 0)))
    inner = np.array([[1.0, 2.0]])
    synsets[-1, 0] = (float(len(names) + 1), "n00001740", "entity", inner)
    meta = io.BytesIO()
    savemat(meta, {"other": np.eye(3), "synsets": synsets}, do_compression=True)
    truth = "".join(f"{label + 1}\n" for label in labels)
    root = "ILSVRC2012_devkit_t12"
    with tarfile.open(path, "w:gz") as archive:
        _add(archive, f"{root}/readme.txt", b"as in the real one\n")
        _add(archive, f"{root}/data/meta.mat", meta.getvalue())
        truth_name = f"{root}/data/ILSVRC2012_validation_ground_truth.txt"
        _add(archive, truth_name, truth.encode())


def write_sums(folder: Path) -> Path:
    """Write SUMS as md5sum writes it; gives its path."""
    lines = []
    for path in sorted(folder.glob("ILSVRC2012_*")):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'md5').hexdigest()}  {path.name}\n")
    sums = folder / "SUMS"
    sums.write_text("".join(lines))
    return sums


def _pictures(sizes: Sequence[int]) -> Iterator[bytes]:
    draw = dice(1)
    pool = draw.randbytes(max(sizes) + 4096)
    number = 0
    while True:
        start = draw.randrange(4096)
        size = sizes[number % len(sizes)]
        yield number.to_bytes(8, "big") + pool[start : start + size - 8]
        number += 1


def _kept(picture: bytes) -> bytes | int:
    return picture if len(picture) <= 1 << 16 else len(picture)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(content), 0o644, 1_300_000_000
    archive.addfile(member, io.BytesIO(content))
