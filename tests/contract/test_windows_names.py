"""`launch` and the trainers refuse the same names on Windows: of a dataset's files, of an archive's."""

from __future__ import annotations

import pytest

from jobs.host.untrusted import windows_objection
from trainer.common.errors import TrainingError
from trainer.data.archives.member_names import MemberNames

# Another stream of a file, a drive, a device, or a name that Windows writes otherwise.
UNSAFE = [
    *("train:evil.exe", "a/b:c", "C:x", "c:", ":", "a/C:/x"),
    *("NUL", "nul", "CON", "aux.jpg", "PRN/x", "a/NUL", "a/con.txt", "COM1", "lpt9.tar.gz", "Com0"),
    *(
        "CONIN$",
        "conout$.txt",
        "com\u00b9",
        "LPT\u00b2.jpg",
        "com\u00b3",
        "NUL .txt",
        "aux .tar.gz",
    ),
    *("trailing ", "a /b", "a/b ", " ", "a/ /b"),
]
SAFE = [
    *(
        "null",
        "console",
        "com",
        "com10",
        "lpt",
        "aux1.jpg",
        "a.nul",
        "xCON",
        "conin",
        "nul_",
        "nul-1.jpg",
    ),
    *("a b", "a.b", ".hidden", "n\u00fcl", "com\u2074", "train/n01440764/n01440764_10026.JPEG"),
]


def is_refused_by_trainer(name: str) -> bool:
    try:
        MemberNames("x.tar").file(name)
    except TrainingError:
        return True
    return False


@pytest.mark.parametrize("name", UNSAFE)
def test_what_windows_takes_for_something_else_is_refused_by_both(name: str) -> None:
    assert (windows_objection(name) is not None, is_refused_by_trainer(name)) == (True, True)


@pytest.mark.parametrize("name", SAFE)
def test_what_looks_like_it_is_taken_by_both(name: str) -> None:
    assert (windows_objection(name), is_refused_by_trainer(name)) == (None, False)
