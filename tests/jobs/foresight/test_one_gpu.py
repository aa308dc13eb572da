"""Published rates of one GPU are found by a job's program and the VM size, and by nothing less."""

import pytest

from jobs.foresight.one_gpu import published_rate

V100, A100 = "Standard_NC24rs_v3", "Standard_ND96asr_v4"
TORCH = ["python", "-m", "trainer.pytorch.resnet50"]


@pytest.mark.parametrize(
    ("command", "size", "rate"),
    [
        (TORCH, V100, 367.0),
        ([*TORCH, "--precision", "fp16"], V100, 1200.0),
        ([*TORCH, "--precision=fp16"], A100, 2470.0),
        (["python", "resnet50.py", "--precision", "tf32"], "standard_nc48ads_a100_v4", 938.0),
        # No units for half precision.
        ([*TORCH, "--precision", "bf16"], "Standard_ND24s", 173.2),
        (["python", "train.py", "--model", "ResNet-101"], "Standard_NC24r", 30.2),
        (
            ["python", "train.py", "-a", "mobilenet_v2", "--image-size=224"],
            "Standard_NC6s_v2",
            2435.5,
        ),
        (["python", "-m", "trainer.pytorch.classifier", "--network=resnet152"], V100, 144.1),
    ],
)
def test_the_rate_of_a_network_on_a_gpu(command, size, rate):
    found = published_rate(command, size)
    assert found is not None
    assert found.rate == rate


@pytest.mark.parametrize(
    ("command", "size"),
    [
        (["python", "train.py"], V100),
        (["python", "-m", "trainer.pytorch.mnist"], V100),
        # The option counts, and nobody has published that one.
        ([*TORCH, "--network", "resnet18"], V100),
        ([*TORCH, "--image-size", "64"], V100),
        # Known in fp32 alone, and much faster in bf16.
        (["python", "train.py", "--model", "resnet152", "--precision", "bf16"], V100),
        (TORCH, "Standard_ND96isr_H100_v5"),
        (TORCH, "Standard_NC24rs_v30"),
        (TORCH, "local"),
    ],
)
def test_what_nobody_has_published_is_not_known(command, size):
    assert published_rate(command, size) is None


def test_a_rate_says_its_source_its_batch_and_its_gradient():
    found = published_rate(TORCH, V100)
    assert (found.source, found.batch, found.gradient_mb) == (
        "NVIDIA's DeepLearningExamples, 2021",
        256,
        102,
    )
