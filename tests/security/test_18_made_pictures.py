"""Made pictures are never taken from a folder that somebody else made first.

Attacker: another user of the machine. Whoever made `/tmp/trainyard-UID` before the victim did had his own
pictures trained on, and could exchange the files at will.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from trainer.common.errors import TrainingError
from trainer.data.synthesize.coco import make_default_coco
from trainer.data.synthesize.digits import make_default_digits
from trainer.data.synthesize.folders import default_folder

NOBODY = 65534


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The name that is guessed, in a folder for everybody's files."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    return shared / f"trainyard-{os.getuid()}"


def squat(place: Path, how: str) -> None:
    """Be there first."""
    if how == "link":
        (place.parent / "theirs").mkdir()
        place.symlink_to("theirs")
    elif how == "dangling":
        place.symlink_to("theirs")
    elif how == "file":
        place.write_text("")
    else:
        place.mkdir()
        place.chmod({"owner": 0o755, "group": 0o770, "everybody": 0o777}[how])
    if how == "owner":
        os.chown(place, NOBODY, NOBODY)


@pytest.mark.parametrize("how", ["owner", "link", "dangling", "file", "group", "everybody"])
def test_a_folder_that_may_be_somebody_else_s_is_refused_by_every_maker(
    place: Path, how: str
) -> None:
    if how == "owner" and os.getuid():
        pytest.skip("only root can make a file another user's")
    squat(place, how)
    for make in (
        lambda: default_folder(seed=1),
        lambda: make_default_coco(num_train=1, num_val=1, seed=1),
        lambda: make_default_digits(num_train=1, num_test=1, seed=1),
    ):
        with pytest.raises(TrainingError) as error:
            make()
        assert str(error.value) == (
            f"`{place}` is not a folder of yours alone, so nothing in it is believed "
            "(hint: set TMPDIR to a folder of your own)"
        )


def test_ours_is_made_for_us_alone_and_used_again(place: Path) -> None:
    folder = default_folder(seed=1)
    assert (folder.parent, place.stat().st_mode & 0o777) == (place, 0o700)
    assert default_folder(seed=1) == folder
