"""Requirements of a job: the files that decide what is installed, and what no layer can hold."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from jobs.contracts.errors import LaunchError
from jobs.jobfile.read import load_job
from jobs.jobfile.requirements import MOST_BYTES, fingerprint


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_txt", ".txt").replace("_whl", ".whl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_files_that_decide_are_what_it_includes_and_the_archives_that_it_names(tmp_path):
    texts = {
        "requirements_txt": "-r more/base.txt # shared\n--constraint=pins.txt\nnumpy \\\n  >=1\n./a-1.whl\n",
        "more__base_txt": "--find-links ../wheels\n-c ../pins.txt\nb @ https://host/b.whl\n",
        "pins_txt": "numpy<3\n",
        "wheels__c-1_whl": "c",
        "wheels__notes_txt": "no archive",
        "a-1_whl": "a",
        "other_txt": "of another job",
    }
    write(tmp_path, **texts)
    assert fingerprint(tmp_path, "requirements.txt") == [
        f"a-1.whl {digest('a')}",
        f"more/base.txt {digest(texts['more__base_txt'])}",
        f"pins.txt {digest(texts['pins_txt'])}",
        f"requirements.txt {digest(texts['requirements_txt'])}",
        f"wheels/c-1.whl {digest('c')}",
    ]


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("-e .", "`-e .`: the layer is shared by runs, so it has no editable package", "setup: [pip install .]"),
        ("-r ../secret.txt", "`../secret.txt` is outside the folder that travels (FOLDER)", "copy it into that folder, or name a larger one: `code: ..`"),
        ("-rmissing.txt", "`missing.txt` is not a file in FOLDER", "ls FOLDER"),
        ("-r https://host/r.txt", "`-r https://host/r.txt` lies outside the job's folder", "copy the file beside the job file"),
        ("/etc/passwd", "`/etc/passwd` is outside the folder that travels (FOLDER)", "copy it into that folder, or name a larger one: `code: ..`"),
        ("x @ file:///etc/passwd", "`/etc/passwd` is outside the folder that travels (FOLDER)", "copy it into that folder, or name a larger one: `code: ..`"),
        ("./pkg[extra]", "`./pkg` is a folder, and a layer holds built packages only", "setup: [pip install ./pkg]"),
    ],
)  # fmt: skip
def test_what_no_layer_can_hold_is_refused_with_what_to_type(tmp_path, line, message, hint):
    job = tmp_path / "job"
    write(tmp_path, secret_txt="s", job__requirements_txt=f"{line}\n", job__pkg__setup_txt="")
    with pytest.raises(LaunchError) as caught:
        fingerprint(job, "requirements.txt")
    told = f"requirements.txt: {message.replace('FOLDER', str(job))}"
    assert (caught.value.message, caught.value.hint) == (told, hint.replace("FOLDER", str(job)))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("./a-1.whl; python_version > '3'", ["a-1.whl"]),
        ("./a-1.whl[extra];sys_platform == 'a/b' --hash=sha256:0", ["a-1.whl"]),
        ("a @ file://FOLDER/a-1.whl ; sys_platform == 'linux'", ["a-1.whl"]),
        ("file://FOLDER/a-1.whl; sys_platform == 'linux'", ["a-1.whl"]),
        ("numpy; platform_machine == 'a/b'", []),
        ("a @ https://host/a;b.whl", []),
    ],
)
def test_marker_is_no_part_of_what_a_requirement_names(tmp_path, line, named):
    text = line.replace("FOLDER", str(tmp_path))
    write(tmp_path, requirements_txt=f"{text}\n", **{"a-1_whl": "a"})
    names = [each.split()[0] for each in fingerprint(tmp_path, "requirements.txt")]
    assert names == [*named, "requirements.txt"]


def test_link_out_of_the_folder_and_a_file_too_large_are_refused(tmp_path):
    write(tmp_path, secret_txt="s", job__large_txt="#" * (MOST_BYTES + 1))
    (tmp_path / "job" / "link.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(LaunchError, match=r"`link\.txt` is outside the folder that travels"):
        fingerprint(tmp_path / "job", "link.txt")
    with pytest.raises(LaunchError, match="have more than 1 MB"):
        fingerprint(tmp_path / "job", "large.txt")


def test_file_that_includes_itself_is_read_once(tmp_path):
    write(tmp_path, a_txt="-r b.txt\n", b_txt="-r a.txt\n")
    names = [each.split()[0] for each in fingerprint(tmp_path, "a.txt")]
    assert names == ["a.txt", "b.txt"]


def test_job_names_its_requirements_relative_to_itself(tmp_path):
    write(tmp_path, src__train_txt="", job__requirements_txt="numpy\n", src__train="")
    job = tmp_path / "job" / "job.yaml"
    job.write_text("name: own\nimage: pytorch\nscript: job.yaml\nrequirements: requirements.txt\n")
    loaded = load_job(str(job))
    assert loaded.code is not None
    assert loaded.code.requirements == "requirements.txt"
    wider = load_job(str(job), ["code=.."])
    assert wider.code is not None
    assert wider.code.requirements == "job/requirements.txt"


@pytest.mark.parametrize("program", ["module: trainer.pytorch.mnist", "command: [python, -V]"])
def test_requirements_of_a_job_whose_folder_stays_behind_are_refused(tmp_path, program):
    write(tmp_path, requirements_txt="numpy\n")
    job = tmp_path / "job.yaml"
    job.write_text(f"name: own\nimage: pytorch\n{program}\nrequirements: requirements.txt\n")
    with pytest.raises(LaunchError) as caught:
        load_job(str(job))
    told = f"{job}: `requirements: requirements.txt` does not travel with this job's code"
    assert caught.value.message == told
    assert caught.value.hint == "add `code: .` to take the job file's folder along"
