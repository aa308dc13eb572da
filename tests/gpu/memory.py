"""What a GPU's memory holds, as `--find-batch` tells it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.gpu.findings import Finding
from tests.gpu.programs import Ended, Where, train

RESNET50 = ("trainer.pytorch.resnet50", "--precision", "bf16", "--data", "random")


def largest_batch(where: Where) -> Sequence[Finding]:
    """Find ResNet-50's largest batch; train with it, and with one that is a quarter larger."""

    def take_two_steps(name: str, batch: int) -> Ended:
        sizes = ("--batch-per-rank", str(batch), "--num-images", str(2 * batch))
        return train(where, name, *RESNET50, *sizes, "--epochs", "1")

    found = train(where, "found", *RESNET50, "--find-batch").require().summary["largest_batch"]
    beyond_batch = found * 5 // 4
    held, beyond = take_two_steps("held", found), take_two_steps("beyond", beyond_batch)
    last = (beyond.output.splitlines() or [""])[-1]
    return [
        Finding(
            what=f"`--find-batch`: ResNet-50 in bf16, {found} pictures",
            seen=f"a training of them ended with {held.codes[0]}",
            wanted="0",
            is_met=held.codes == [0],
        ),
        Finding(
            what="a quarter more of them",
            seen=f"{beyond.codes[0]}: {last}",
            wanted="1, and a message that names memory and batch",
            is_met=beyond.codes == [1]
            and f"{beyond_batch}" in last
            and "memory does not hold" in last,
        ),
    ]
