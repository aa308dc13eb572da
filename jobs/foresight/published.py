"""Published rates that tell how fast the networks of some VM sizes are, where no run of one's own does.

msalvaris/BatchAIHorovodBenchmark at 0d23f48: images/s of a whole job, batch 64 a GPU, fp32, Horovod,
Azure Batch AI, 2018; four GPUs a node. Over RDMA by Intel MPI, over Ethernet by NCCL.
"""

from __future__ import annotations

from jobs.foresight.rows import Row

SOURCE = "published rates of 2018"
_RDMA, _ETHERNET = "published RDMA", "published Ethernet"
_FABRICS = {
    "standard_nc24r": _RDMA,
    "standard_nc24rs_v2": _RDMA,
    "standard_nd24rs": _RDMA,
    "standard_nc24rs_v3": _RDMA,
    "standard_nc24": _ETHERNET,
    "standard_nc24s_v2": _ETHERNET,
    "standard_nd24s": _ETHERNET,
    "standard_nc24s_v3": _ETHERNET,
}
# Network on a GPU, its gradient in MB, GPUs, images/s.
_RATES = {
    _RDMA: (
        ("v100 resnet101_v2", 178, 1, 203.5),
        ("v100 resnet101_v2", 178, 4, 577.1),
        ("v100 resnet101_v2", 178, 8, 1073.2),
        ("v100 mobilenetv2", 14, 1, 2135.1),
        ("v100 mobilenetv2", 14, 8, 7760.2),
    ),
    _ETHERNET: (
        ("p100 resnet50", 102, 1, 230.1),
        ("p100 resnet50", 102, 4, 855.8),
        ("p40 mobilenetv2", 14, 1, 2237.5),
        ("p40 mobilenetv2", 14, 16, 10738.8),
        ("v100 resnet50", 102, 1, 349.5),
        ("v100 resnet50", 102, 32, 4268.9),
    ),
}


def published_rows(size: str) -> list[Row]:
    """Give the rows that calibrate the fabric of a VM size; none for a size without published rates."""
    fabric = _FABRICS.get(size.lower(), "")
    return [
        Row(
            series=series,
            gpus=gpus,
            gpus_per_node=4,
            rate=rate,
            gradient_mb=gradient_mb,
            batch_per_gpu=64,
            fabric=fabric,
        )
        for series, gradient_mb, gpus, rate in _RATES.get(fabric, ())
    ]
