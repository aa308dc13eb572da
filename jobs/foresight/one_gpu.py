"""Find the published rate of one GPU for a network, for jobs that never ran (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath

import msgspec

# How far another program, precision or batch may be off either way: assumed.
OFF_BY = 2.0
PICTURE = "224"  # pixels a side, of all rates below
_OPTIONS = {"--network", "--model", "--model-name", "--arch", "-a"}
_GRADIENT_MB = {
    "resnet50": 102.0,
    "resnet50v2": 102.0,
    "resnet101": 178.0,
    "resnet101v2": 178.0,
    "resnet152": 241.0,
    "mobilenetv2": 14.0,
}
# Sizes by the beginning of their names.
_GPUS = {
    r"nc(6|12|24)r?": "K80",
    r"nc(6|12|24)r?s_v2": "P100",
    r"nd(6|12|24)r?s": "P40",
    r"nc(6|12|24)r?s_v3": "V100",
    r"nd40rs_v2": "V100",
    r"nc(24|48|96)ads_a100_v4": "A100",
    r"nd96(amsr_a100|asr)_v4": "A100",
}
_MIXED = {"V100", "A100"}  # are much faster in half precision


class OneGpu(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a published rate in images/s of one GPU, with its batch; `is_mixed` is of bf16 or fp16."""

    gpu: str
    network: str
    rate: float
    batch: float
    is_mixed: bool
    source: str

    @property
    def gradient_mb(self) -> float:
        """Size of the network's gradient in fp32."""
        return _GRADIENT_MB[self.network]


_BATCH_AI = "BatchAIHorovodBenchmark, 2018"
_NVIDIA = "NVIDIA's DeepLearningExamples, 2021"


def _batch_ai(gpu: str, **rates: float) -> list[OneGpu]:
    """Rows of msalvaris/BatchAIHorovodBenchmark at 0d23f48: TensorFlow, batch 64, read from its pictures."""
    return [
        OneGpu(gpu=gpu, network=name, rate=rate, batch=64.0, is_mixed=False, source=_BATCH_AI)
        for name, rate in rates.items()
    ]


def _nvidia(gpu: str, *, fp32: float, mixed: float) -> list[OneGpu]:
    """Rows of NVIDIA/DeepLearningExamples at 291f0d0, PyTorch's ResNet-50 v1.5, batch 256; fp32 is TF32 on A100."""
    return [
        OneGpu(
            gpu=gpu, network="resnet50", rate=rate, batch=256.0, is_mixed=is_mixed, source=_NVIDIA
        )
        for rate, is_mixed in ((fp32, False), (mixed, True))
    ]


_RATES = [
    *_nvidia("V100", fp32=367.0, mixed=1200.0),
    *_nvidia("A100", fp32=938.0, mixed=2470.0),
    *_batch_ai("K80", mobilenetv2=1177.2, resnet50=53.0, resnet50v2=57.1, resnet101=30.2),
    *_batch_ai("K80", resnet101v2=30.5),
    *_batch_ai("P100", mobilenetv2=2435.5, resnet50=234.4, resnet50v2=237.6, resnet101=135.7),
    *_batch_ai("P100", resnet101v2=137.2, resnet152=94.1),
    *_batch_ai("P40", mobilenetv2=2546.3, resnet50=173.2, resnet50v2=177.0, resnet101=106.9),
    *_batch_ai("P40", resnet101v2=108.6, resnet152=75.2),
    *_batch_ai("V100", mobilenetv2=3698.3, resnet50v2=364.8, resnet101=206.0),
    *_batch_ai("V100", resnet101v2=208.3, resnet152=144.1),
]


def published_rate(command: Sequence[str], size: str) -> OneGpu | None:
    """Find the rate of a job's network on a VM size; None for one that nobody has published here.

    The network is the one that an option names, else the name of the program; half precision counts
    where the GPU has units for it.
    """
    network, gpu = _network_of(command), _gpu_of(size)
    given = _values(command, {"--image-size"})
    if given and given[-1] != PICTURE:
        return None
    precision = next(iter(_values(command, {"--precision"})), "fp32")
    if precision == "bf16" and gpu == "V100":
        return None  # it has no units for bf16
    is_mixed = gpu in _MIXED and precision not in ("fp32", "tf32")
    for each in _RATES:
        if (each.gpu, each.network, each.is_mixed) == (gpu, network, is_mixed):
            return each
    return None


def _network_of(command: Sequence[str]) -> str | None:
    named = _values(command, _OPTIONS)
    if not named:
        modules = [each.rpartition(".")[2] for each in _values(command, {"-m"})]
        named = modules or [PurePosixPath(each).stem for each in command if each.endswith(".py")]
    plain = [re.sub(r"[^a-z0-9]", "", each.lower()) for each in named]
    return plain[-1] if plain and plain[-1] in _GRADIENT_MB else None


def _values(command: Sequence[str], options: set[str]) -> list[str]:
    """List the values that options of these names have: `--name value` and `--name=value`."""
    spaced = [value for word, value in pairwise(command) if word in options]
    joined = [each.partition("=") for each in command]
    return spaced + [value for word, equals, value in joined if equals and word in options]


def _gpu_of(size: str) -> str | None:
    name = size.lower().removeprefix("standard_")
    return next((gpu for form, gpu in _GPUS.items() if re.fullmatch(form, name)), None)
