"""A layer's program: what it says of pip's errors, and that it keeps what is linked."""

from __future__ import annotations

import pytest

from jobs.images.runtimes import LINKED as LINKED_BY_HOROVOD
from jobs.rank.layer import LINKED, explain

CONFLICT = """\
ERROR: Cannot install -r r.txt (line 2) and torch==2.9.0 because these package versions have conflicts.

The conflict is caused by:
    The user requested torch==2.9.0
    sentences 5.1 depends on torch>=2.11
    The user requested (constraint) torch==2.15.0

To fix this you could try to:
"""
AMONG_THEMSELVES = """\
The conflict is caused by:
    a 1.0 depends on c<2
    b 1.0 depends on c>=2
"""
HASH = """\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated ...
    iniconfig==2.3.1 from https://host/iniconfig.whl (from -r r.txt (line 1)):
        Expected sha256 0000
"""
NO_HASH = "ERROR: Hashes are required in --require-hashes mode, but they are missing from some ..."


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (CONFLICT, "r.txt asks for `torch==2.9.0`, `sentences 5.1 depends on torch>=2.11`, and the image has `torch==2.15.0`"),
        (AMONG_THEMSELVES, "r.txt: its packages do not fit each other: `a 1.0 depends on c<2`, `b 1.0 depends on c>=2`"),
        (HASH, "r.txt: `iniconfig==2.3.1` is not the file that its hash names"),
        (NO_HASH, "r.txt: some packages have a hash and others have none"),
        ("ERROR: No matching distribution found for x", None),
    ],
)  # fmt: skip
def test_mistake_in_the_requirements_is_one_message(said: str, message: str | None) -> None:
    mistake = explain(said.splitlines(), "r.txt")
    assert (mistake and mistake[0]) == message


def test_packages_that_horovod_is_linked_against_are_kept() -> None:
    assert set(LINKED) == {"horovod", *LINKED_BY_HOROVOD}
