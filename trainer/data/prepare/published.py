"""Lists the archives that data sets are published as: names, checksums, addresses.

Checksums: ImageNet's MD5s stand on its download page (and in torchvision's datasets/imagenet.py);
COCO's and MNIST's sizes and SHA-256s are those of TensorFlow Datasets' url_checksums; that of the
ants and bees is in PyTorch's tutorials, .jenkins/download_data.py; that of MNIST as one file is in
Keras, datasets/mnist.py. The names of torchvision's weights hold the first 8 digits of their SHA-256;
the whole ones are as several public projects list them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.common.errors import TrainingError

_ALGORITHMS = {32: "md5", 40: "sha1", 64: "sha256", 128: "sha512"}
_LINE = re.compile(r"\\?([0-9a-fA-F]+) [ *](.+)")


@dataclass(frozen=True, kw_only=True)
class Checksum:
    """The digest an archive must have; `origin` ends the sentence `the archive that ...`."""

    algorithm: str
    digest: str
    origin: str = "was published"


@dataclass(frozen=True, kw_only=True)
class Archive:
    """One published archive. `urls` are mirrors; without them `num_bytes` is not known."""

    name: str
    checksum: Checksum
    num_bytes: int = 0
    urls: tuple[str, ...] = ()


def _md5(digest: str) -> Checksum:
    return Checksum(algorithm="md5", digest=digest)


def _sha256(digest: str) -> Checksum:
    return Checksum(algorithm="sha256", digest=digest)


def _coco(path: str, num_bytes: int, digest: str) -> Archive:
    # images.cocodataset.org shows the certificate of S3, which serves the same bucket by this name.
    url = f"https://s3.amazonaws.com/images.cocodataset.org/{path}"
    name = path.rpartition("/")[2]
    return Archive(name=name, num_bytes=num_bytes, checksum=_sha256(digest), urls=(url,))


def _mnist(name: str, num_bytes: int, digest: str) -> Archive:
    mirrors = (
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    )
    urls = tuple(f"{mirror}{name}" for mirror in mirrors)
    return Archive(name=name, num_bytes=num_bytes, checksum=_sha256(digest), urls=urls)


IMAGENET = (
    Archive(name="ILSVRC2012_devkit_t12.tar.gz", checksum=_md5("fa75699e90414af021442c21a62c3abf")),
    Archive(name="ILSVRC2012_img_val.tar", checksum=_md5("29b22e2961454d5413ddabcf34fc5622")),
    Archive(name="ILSVRC2012_img_train.tar", checksum=_md5("1d675b47d978889d74fa0da5fadfb00e")),
)
COCO = (
    _coco(
        "annotations/annotations_trainval2017.zip",
        252_907_541,
        "113a836d90195ee1f884e704da6304dfaaecff1f023f49b6ca93c4aaae470268",
    ),
    _coco(
        "zips/val2017.zip",
        815_585_330,
        "4f7e2ccb2866ec5041993c9cf2a952bbed69647b115d0f74da7ce8f4bef82f05",
    ),
    _coco(
        "zips/train2017.zip",
        19_336_861_798,
        "69a8bb58ea5f8f99d24875f21416de2e9ded3178e903f1f7603e283b9e06d929",
    ),
)
MNIST = (
    _mnist(
        "train-images-idx3-ubyte.gz",
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    _mnist(
        "train-labels-idx1-ubyte.gz",
        28_881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    _mnist(
        "t10k-images-idx3-ubyte.gz",
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    _mnist(
        "t10k-labels-idx1-ubyte.gz",
        4_542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)
KERAS_MNIST = (
    Archive(
        name="mnist.npz",
        num_bytes=11_490_434,
        checksum=_sha256("731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"),
        urls=("https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",),
    ),
)
HYMENOPTERA = (
    Archive(
        name="hymenoptera_data.zip",
        num_bytes=47_286_322,
        checksum=_sha256("fbc41b31d544714d18dd1230b1e2b455e1557766e13e67f9f5a7a23af7c02209"),
        urls=("https://download.pytorch.org/tutorial/hymenoptera_data.zip",),
    ),
)


def _torchvision(name: str, num_bytes: int, digest: str) -> Archive:
    url = f"https://download.pytorch.org/models/{name}"
    return Archive(name=name, num_bytes=num_bytes, checksum=_sha256(digest), urls=(url,))


# Weights that know ImageNet, for the job of a data set to begin with (torchvision's IMAGENET1K_V1).
WEIGHTS = {
    "hymenoptera": _torchvision(
        "resnet18-f37072fd.pth",
        46_830_571,
        "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    ),
    "coco": _torchvision(
        "resnet50-0676ba61.pth",
        102_530_333,
        "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
    ),
}


def read_checksums(path: Path) -> dict[str, Checksum]:
    """Read a file as md5sum and sha256sum write it; gives checksums by the archives' names."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        message = f"`{path}` cannot be read: {error}"
        raise TrainingError(message, hint="sha256sum *.tar* > FILE") from None
    found: dict[str, Checksum] = {}
    for number, line in enumerate(lines, 1):
        matched = _LINE.fullmatch(line)
        algorithm = _ALGORITHMS.get(len(matched[1])) if matched else None
        if not matched or not algorithm or algorithm not in hashlib.algorithms_available:
            message = f"line {number} of `{path}` is not a checksum and a file name"
            raise TrainingError(message, hint="sha256sum *.tar* > FILE")
        name = Path(matched[2]).name
        origin = f"`{path.name}` lists"
        found[name] = Checksum(algorithm=algorithm, digest=matched[1].lower(), origin=origin)
    return found


def expected_checksums(
    archives: Sequence[Archive], listed: Mapping[str, Checksum] | None
) -> dict[str, Checksum]:
    """Give the checksum of each archive: as published, or all of them as the user lists them."""
    if listed is None:
        return {archive.name: archive.checksum for archive in archives}
    missing = [archive.name for archive in archives if archive.name not in listed]
    if missing:
        message = f"the checksums given have none for {', '.join(f'`{name}`' for name in missing)}"
        raise TrainingError(message, hint="sha256sum *.tar* > FILE lists all archives")
    return {archive.name: listed[archive.name] for archive in archives}
