"""A picture of a few bytes costs one message, not the machine's memory.

Attacker: the author of a dataset, or of one picture in it. A PNG or a JPEG whose header says 65,500 x
65,500 pixels made torchvision's decoder, the way back for all that ours refuses, ask for 13 GB.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.busy import how_busy
from tests.fakes.hostile_pictures import hostile_pictures, huge_jpeg, huge_png
from trainer.common.errors import TrainingError
from trainer.data.pictures.decoding import decode_rgb
from trainer.data.pictures.grid import Prediction, write_grid
from trainer.data.pictures.header import MOST_PIXELS, require_decodable

TRAINER = Path(__file__).parents[2] / "trainer"
# What is said of each, in a process that may have 200 MB beside what importing takes, and how long it took.
PROGRAM = """
import json, resource, time, warnings
from pathlib import Path
from PIL import Image
from tests.fakes.hostile_pictures import hostile_pictures
from trainer.common.errors import TrainingError
from trainer.data.pictures.decoding import decode_rgb
from trainer.data.pictures.header import require_decodable
warnings.simplefilter("ignore")
Image.init()
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2)
begun_s, said = time.process_time(), {}
for name, data in hostile_pictures().items():
    for look in (lambda data: require_decodable(data, lambda: "x"), lambda data: decode_rgb(data, "x")):
        try:
            look(data)
        except TrainingError as error:
            said.setdefault(name, []).append(str(error))
print(json.dumps([said, time.process_time() - begun_s]))
"""


def test_what_no_decoder_is_to_see_is_refused_by_its_header() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": str(TRAINER.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    said, took_s = json.loads(done.stdout)
    assert list(said) == list(hostile_pictures())
    assert took_s < how_busy()
    for name, messages in said.items():
        assert [each.partition(": ")[0] for each in messages] == [
            "`x` is not a complete picture"
        ] * 2
        assert ["pixels" in each for each in messages] == [name.startswith("huge")] * 2


@pytest.mark.parametrize("make", [huge_png, huge_jpeg])
def test_the_limit_is_one_of_pixels(make) -> None:
    width = 60_000
    require_decodable(make(width, MOST_PIXELS // width), lambda: "x")
    with pytest.raises(TrainingError) as error:
        require_decodable(make(width, MOST_PIXELS // width + 1), lambda: "x")
    assert str(error.value) == (
        "`x` is not a complete picture: 60000 x 1492 pixels are more than 89,478,485 "
        "(hint: get the file again, or take it away)"
    )


def test_a_file_that_is_named_to_predict_and_a_grid_s_pictures_are_held_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.png").write_bytes(huge_png())
    with pytest.raises(TrainingError, match="not a complete picture"):
        decode_rgb(tmp_path / "x.png", "x.png", formats=None)
    hostile = Prediction(picture=huge_png(), predicted="a", share=1.0, about="b")
    write_grid(tmp_path / "grid.png", [hostile])
    assert "`the picture of b` is not a complete picture" in capsys.readouterr().err


def test_no_trainer_calls_a_decoder_in_another_place() -> None:
    """A new one calls `require_decodable` or `decode_rgb`, and is added here."""
    calls = re.compile(
        r"Image\.open\(|decode_(image|jpeg|png|gif)\(|(read|load)_(image|img)\(|imread\("
    )
    found = {
        f"{path.relative_to(TRAINER)}: {call[0]}"
        for path in TRAINER.rglob("*.py")
        for call in calls.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == {
        "data/pictures/decoding.py: Image.open(",
        "pytorch/decoding.py: decode_jpeg(",
        # It reads the file, and gives its bytes to the loader's `decode`.
        "pytorch/maskrcnn_loading.py: read_image(",
        "pytorch/maskrcnn_evaluation.py: read_image(",
    }
