"""GPUs that are there: counted by their files, never passed over in silence, never shared unasked."""

from __future__ import annotations

import pytest

from trainer.common.accelerators import (
    RankDevice,
    count_gpus,
    has_instructions,
    place_on_gpu,
    refuse_unusable,
    require_devices,
    require_own_gpus,
    warn_of_emulation,
)
from trainer.common.errors import TrainingError
from trainer.common.world import World


def test_gpus_are_counted_by_their_device_files(tmp_path):
    for name in ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null"):
        (tmp_path / name).touch()
    assert count_gpus(tmp_path) == 2
    assert count_gpus(tmp_path / "missing") == 0


@pytest.mark.parametrize(
    ("flags", "known"),
    [
        ("flags : fpu sse avx avx2", ["fp32"]),
        ("flags : fpu avx512f avx512_bf16", ["fp32", "bf16"]),
        ("flags : fpu amx_bf16 amx_fp16", ["fp32", "bf16", "fp16"]),
        ("flags : fpu avx512_bf16 avx512_fp16", ["fp32", "bf16"]),
        ("Features : fp asimd fphp asimdhp", ["fp32", "fp16"]),
        ("Features : fp asimd asimdhp bf16", ["fp32", "bf16", "fp16"]),
        (None, ["fp32", "bf16", "fp16"]),
    ],
)
def test_a_cpu_without_instructions_for_a_precision_is_warned_of(tmp_path, capsys, flags, known):
    processors = tmp_path / "cpuinfo"
    if flags is not None:
        processors.write_text(f"processor : 0\n{flags}\n")
    names = ("fp32", "bf16", "fp16")
    assert [each for each in names if has_instructions(each, processors)] == known
    for each in names:
        warn_of_emulation(each, "cuda", processors)
        warn_of_emulation(each, "cpu", processors)
    assert capsys.readouterr().err.splitlines() == [
        f"warning: this CPU has no instructions for {each}; fp32 is likely to be several times faster"
        for each in names
        if each not in known
    ]


def test_a_gpu_that_cannot_be_used_ends_the_rank_with_the_frameworks_words():
    with pytest.raises(
        TrainingError, match=r"4 GPUs are here, and PyTorch can use none: too old"
    ) as error:
        refuse_unusable("PyTorch", "too old", {}, num_gpus=4)
    assert "--device cpu" in (error.value.hint or "")
    with pytest.raises(TrainingError, match=r"1 GPU is here"):
        refuse_unusable("TensorFlow", "no cuDNN", {"CUDA_VISIBLE_DEVICES": "0"}, num_gpus=1)


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_and_none_at_all_are_no_error(hidden):
    refuse_unusable("PyTorch", "hidden", {"CUDA_VISIBLE_DEVICES": hidden}, num_gpus=4)
    refuse_unusable("PyTorch", "none", {}, num_gpus=0)


@pytest.mark.parametrize(
    ("local_rank", "num_visible", "environ", "number"),
    [
        (3, 4, {}, 3),
        (0, 4, {}, 0),
        # A launcher that shows each rank its own.
        (3, 1, {"CUDA_VISIBLE_DEVICES": "3"}, 0),
        (3, 2, {"CUDA_VISIBLE_DEVICES": "6,7"}, 1),
        # Told to share, by a user; the supervisor gave the node other ones.
        (3, 2, {"CUDA_VISIBLE_DEVICES": "0,1", "TRAINYARD_NODE_GPUS": "2,3"}, 1),
        (3, 2, {"CUDA_VISIBLE_DEVICES": "0,1"}, 1),
    ],
)
def test_each_rank_has_a_gpu_of_its_own(local_rank, num_visible, environ, number):
    world = World(rank=local_rank, size=4, local_rank=local_rank, local_size=4)
    assert place_on_gpu(world, environ, num_visible=num_visible) == number


def test_ranks_that_would_share_a_gpu_unasked_are_refused():
    world = World(rank=0, size=8, local_rank=0, local_size=8)
    with pytest.raises(TrainingError, match=r"8 ranks of this node would share 4 of its GPUs"):
        place_on_gpu(world, {}, num_visible=4)
    with pytest.raises(TrainingError, match=r"would share 1"):
        place_on_gpu(World(size=2, local_size=2), {}, num_visible=1)
    # One of four is lost: ranks 0 and 3 would meet on another.
    four = World(rank=3, size=4, local_rank=3, local_size=4)
    with pytest.raises(TrainingError, match=r"4 ranks of this node would share 3 of its GPUs"):
        place_on_gpu(four, {}, num_visible=3)
    # One of two is lost; a container that shows each rank one GPU alone looks the same, and has to tell.
    with pytest.raises(TrainingError, match=r"2 ranks of this node would share 1 of its GPUs") as e:
        place_on_gpu(World(rank=1, size=2, local_rank=1, local_size=2), {}, num_visible=1)
    assert e.value.hint == (
        "`processes_per_node: gpu`, or CUDA_VISIBLE_DEVICES with fewer GPUs than ranks; "
        "NCCL takes one rank a GPU"
    )
    # One of those that were named is lost.
    two = World(rank=1, size=2, local_rank=1, local_size=2)
    with pytest.raises(TrainingError, match=r"2 ranks of this node would share 1 of its GPUs"):
        place_on_gpu(two, {"CUDA_VISIBLE_DEVICES": "0,1"}, num_visible=1)


UNASKED = (
    "ranks 0 and 2 would share GPU a of c1 (hint: "
    "set CUDA_VISIBLE_DEVICES to one GPU for each rank of a machine)"
)
OVER_NCCL = (
    "ranks 0 and 2 share GPU a of c1, and NCCL takes one rank a GPU (hint: "
    "--dist-backend gloo, or a GPU for each rank)"
)


def refused(devices: list[RankDevice], backend: str = "gloo") -> str | None:
    """Give what every rank says of ranks on these devices, None where they fit together."""
    try:
        require_devices(devices, backend=backend)
    except TrainingError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("environ", "local_size", "over_gloo", "over_nccl"),
    [
        ({}, 1, UNASKED, UNASKED),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 1, UNASKED, UNASKED),
        ({"CUDA_VISIBLE_DEVICES": "0", "TRAINYARD_NODE_GPUS": "0"}, 1, UNASKED, UNASKED),
        ({"CUDA_VISIBLE_DEVICES": "0"}, 1, None, OVER_NCCL),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 3, None, OVER_NCCL),
    ],
)
def test_a_second_rank_on_a_gpu_is_refused_unless_it_was_told_and_by_nccl(
    environ, local_size, over_gloo, over_nccl
):
    """Ranks by --rank do not know that they are on one machine: what all say of their GPUs tells."""
    told = {"local_size": local_size, "environ": environ}
    own, other = (RankDevice(gpu=gpu, host="c1", **told) for gpu in "ab")
    assert [refused([own, other], each) for each in ("gloo", "nccl")] == [None, None]
    shared = [own, other, own]
    assert [refused(shared, each) for each in ("gloo", "nccl")] == [over_gloo, over_nccl]


@pytest.mark.parametrize("given", ["0", "0,1"])
def test_gpus_that_the_supervisor_chose_for_a_node_are_not_told_to_be_shared(given):
    four = World(rank=3, size=4, local_rank=3, local_size=4)
    environ = {"CUDA_VISIBLE_DEVICES": given, "TRAINYARD_NODE_GPUS": given}
    number = len(given.split(","))
    with pytest.raises(TrainingError, match=f"4 ranks of this node would share {number}"):
        place_on_gpu(four, environ, num_visible=number)


def test_ranks_on_another_kind_of_device_than_rank_0_are_named():
    gpus = [RankDevice(gpu=gpu, host="c1", local_size=2, environ={}) for gpu in "ab"]
    cpu = RankDevice(gpu=None, host="c2", local_size=1, environ={})
    assert refused([cpu, cpu]) is None
    said = "rank {} computes on the {}, rank 0 on the {} (hint: --device cpu, or nodes whose GPUs all work)"
    assert refused([*gpus, cpu]) == said.format(2, "CPU", "GPU")
    assert refused([cpu, *gpus]) == said.format(1, "GPU", "CPU")


def test_ranks_that_share_a_gpu_are_told_before_nccl_meets_them():
    require_own_gpus(["a", "b", "c"])
    with pytest.raises(TrainingError, match=r"^ranks 1 and 3 share GPU b, and"):
        require_own_gpus(["a", "b", "c", "b"])
