"""`launch data prepare|pack|synthesize`: what the programs say reaches their user once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import typer

from jobs.commands.quantities import num_bytes
from jobs.contracts.errors import EnvironmentFailure
from jobs.datasets.programs import run_program
from tests.busy import wait_until
from tests.folders import make_folder
from trainer.data.synthesize.stripes import make_pictures


def launch(*words, cwd):
    program = [sys.executable, "-m", "jobs.cli", "data", *words]
    return subprocess.run(program, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "small set"
    make_pictures(folder, num_classes=2, num_train=6, num_val=2, size=24, seed=1)
    return folder


def test_packing_prints_the_folder_and_says_what_comes_next(pictures):
    done = launch("pack", "small set", "--to", "shards", cwd=pictures.parent)
    shards = pictures.parent / "shards"
    assert (done.returncode, done.stdout) == (0, f"{shards}\n")
    said = done.stderr.splitlines()
    assert said[0].startswith("8 pictures, ")
    assert said[1].startswith("packing 8/8 files, ")
    assert said[2].startswith("8 pictures in 2 shards of tar, ")
    assert said[3:] == ["next", "└── send it  launch data push shards 'small set'"]
    assert (shards / "index.json").is_file()


def test_with_json_each_event_is_a_line_and_the_last_says_what_there_is(pictures):
    done = launch("pack", "small set", "--to", "told", "--json", cwd=pictures.parent)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert [event["event"] for event in events] == ["note", "progress", "done"]
    assert events[-1]["folder"] == str(pictures.parent / "told")
    assert events[-1]["samples"] == {"train": 6, "val": 2}


def test_a_folder_whose_name_looks_like_an_option_is_packed(pictures):
    (pictures.parent / "--x").symlink_to(pictures)
    done = launch("pack", "./--x", "--to=odd", cwd=pictures.parent)
    assert (done.returncode, done.stdout) == (0, f"{pictures.parent / 'odd'}\n")


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("128MiB", 128 << 20), ("1.5 kb", 1500), ("2GB", 2 * 10**9)]
)
def test_a_size_is_read_as_people_write_it(text, size):
    assert num_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1M", "abc", "1e999", "nan", "MB", "20M", "5 iB"])
def test_what_is_no_size_is_a_mistake_in_typing(text):
    with pytest.raises(typer.BadParameter, match="invalid size"):
        num_bytes(text)


def test_made_pictures_can_be_packed_as_the_hint_says(tmp_path):
    words = ("synthesize", "imagenet", "--images", "4", "--classes", "2", "--to", "like")
    done = launch(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'like'}\n")
    hints = [line.partition("launch data ")[2] for line in done.stderr.splitlines()[-2:]]
    assert hints == ["pack like --to like-shards", "push like like"]
    assert launch(*hints[0].split(), cwd=tmp_path).returncode == 0


def test_what_the_program_refuses_is_said_with_its_own_hint(tmp_path):
    done = launch("pack", "nothing", "--to", "x", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: `nothing` was not packed: no folder `nothing`\n\n"
        "hint: DIR/train/<class>/*.jpg, or a folder as COCO 2017's\n"
    )


def test_a_folder_that_cannot_be_made_is_said_with_a_hint(tmp_path, monkeypatch):
    # Takes seconds to load, and its digits would lie in no folder.
    digits = "from types import SimpleNamespace as Bundle\ndef load_digits():\n    return Bundle(images=[], target=[])\n"
    make_folder(tmp_path, {"sklearn/__init__.py": b"", "sklearn/datasets.py": digits.encode()})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "file").write_text("")
    arguments = ["digits", f"--to={tmp_path / 'file' / 'digits'}"]
    with pytest.raises(EnvironmentFailure) as caught:
        run_program("prepare", arguments, failure="`digits` was not prepared", as_json=False)
    assert "Not a directory" in caught.value.message
    assert caught.value.hint


def test_the_programs_own_hint_goes_before_ours(tmp_path, monkeypatch):
    # Stands in front of the real one, as if the group `data` were not installed.
    (tmp_path / "sklearn").mkdir()
    (tmp_path / "sklearn" / "__init__.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    arguments = ["digits", f"--to={tmp_path / 'digits'}"]
    with pytest.raises(EnvironmentFailure) as caught:
        run_program("prepare", arguments, failure="`digits` was not prepared", as_json=False)
    assert caught.value.message == (
        "`digits` was not prepared: scikit-learn is not installed here, and the digits come with it"
    )
    assert (
        caught.value.hint == "uv sync --group data in a clone, pip install scikit-learn elsewhere"
    )


def test_lines_before_the_programs_error_reach_the_user(tmp_path, capsys):
    bad = {f"set/train/a/{number}.jpg": b"no picture" for number in range(7)}
    folder = make_folder(tmp_path, bad) / "set"
    with pytest.raises(EnvironmentFailure, match=r"it was not packed: 7 pictures: .*; and 2 more$"):
        run_program(
            "pack",
            [str(folder), f"--to={tmp_path}/shards"],
            failure="it was not packed",
            as_json=False,
        )
    told = capsys.readouterr().err
    assert [f"/{number}.jpg` cannot be packed" in told for number in range(7)] == [True] * 7
    assert "error: " not in told


def test_a_program_that_breaks_is_shown_as_it_broke(tmp_path, monkeypatch, capsys):
    (tmp_path / "sklearn").mkdir()
    (tmp_path / "sklearn" / "__init__.py").write_text("raise ValueError('odd')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(EnvironmentFailure, match="was not prepared: ValueError: odd"):
        run_program(
            "prepare",
            ["digits", f"--to={tmp_path}/d"],
            failure="it was not prepared",
            as_json=False,
        )
    assert "Traceback" in capsys.readouterr().err


def test_an_unknown_dataset_names_those_there_are(tmp_path):
    done = launch("prepare", "cifar", "--to", "x", cwd=tmp_path)
    assert done.returncode == 2
    assert (
        "(choose from 'digits', 'mnist', 'keras-mnist', 'hymenoptera', 'coco', 'imagenet')"
        in done.stderr
    )


def test_ctrl_c_ends_the_program_gently_and_the_same_command_goes_on(tmp_path):
    words = ["synthesize", "imagenet", "--images", "300", "--classes", "2", "--to", "like"]
    program = [sys.executable, "-m", "jobs.cli", "data", *words]
    started = subprocess.Popen(
        program,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    made = tmp_path / ".like.partial" / "data" / "train"
    wait_until(lambda: [*made.glob("*/*.JPEG")], what=lambda: "no picture", over=started.poll)
    os.killpg(started.pid, signal.SIGINT)
    out, err = started.communicate()
    assert (started.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "interrupted: type the same again to continue"
    assert "Traceback" not in err
    kept = {path: path.stat().st_mtime_ns for path in made.glob("*/*.JPEG")}
    assert 0 < len(kept) < 300
    again = launch(*words, cwd=tmp_path)
    assert again.returncode == 0
    ended = {
        path: (tmp_path / "like/train" / path.relative_to(made)).stat().st_mtime_ns for path in kept
    }
    assert ended == kept
    assert not (tmp_path / ".like.partial").exists()
