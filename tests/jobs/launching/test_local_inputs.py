"""Folders and files that a job names as inputs: a plan sends nothing, a run what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.spec import DatasetVersion, InputSource, InputSpec
from jobs.datasets import datasets as data
from jobs.datasets.records import check_name
from jobs.engines.azure_ml.code_listing import read_code
from jobs.jobfile.read import load_job
from jobs.launching.local_inputs import dataset_name, push_inputs
from jobs.launching.plan import plan_job
from tests.fakes.blob_store import MemoryStore
from tests.fakes.gangs import Gangs
from tests.fakes.launching import FakeEngine, Launching
from tests.folders import make_folder, read_folder

JOB = """\
name: mine
image: {image}
script: train.py
inputs: {{words: ./words, list: {{path: list.txt, mode: mount}}}}
"""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> MemoryStore:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    made = MemoryStore()
    monkeypatch.setattr(data, "open_data_store", lambda *_, **__: made)
    monkeypatch.setattr(FakeEngine, "require_ready", lambda *_: None)
    return made


@pytest.fixture
def job(launching: Launching) -> str:
    folder = launching.folder / "job"
    make_folder(folder / "words", {"a": b"one", "b": b"two"})
    (folder / "train.py").touch()
    (folder / "list.txt").write_text("three")
    return launching.write_job(JOB.format(image="pytorch"), "job/job.yaml")


def inputs_of(launching: Launching, job: str) -> dict[str, InputSpec]:
    plan = launching.type("plan", job, "--json").json()
    return msgspec.convert(plan["spec"]["inputs"], dict[str, InputSpec])


def test_a_plan_says_what_it_would_push_and_sends_nothing(
    launching: Launching, job: str, store: MemoryStore
) -> None:
    folder = Path(job).parent
    typed = launching.type("plan", job)
    assert [line for line in typed.out.splitlines() if "would push" in line] == [
        f"inputs    words = mine-words@1 (2 files, 6 B, download) from {folder}/words: "
        "would push 2 files, 6 B",
        f"          list = mine-list@1/list.txt (1 file, 5 B, mount) from {folder}/list.txt: "
        "would push 1 file, 5 B",
    ]
    assert store.blobs == {}


def test_a_plan_shows_the_mode_of_a_dataset_and_refuses_to_stream_what_is_not_packed(
    launching: Launching, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.datasets.packed.open_data_store", lambda *_: store)
    make_folder(launching.folder / "from", {"a": b"one", "index.txt": b"two"})
    make_folder(launching.folder / "packed", {"index.json": b"{}"})
    for name, folder in (("folders", "from"), ("photos", "packed")):
        data.Datasets(store).push(launching.folder / folder, name)
    (launching.folder / "train.py").touch()
    text = "name: mine\nimage: pytorch\nscript: train.py\ninputs: {{d: {{dataset: {}, mode: stream}}}}\n"
    refused = launching.type("plan", launching.write_job(text.format("folders")))
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        "error: input `d`: `folders@1` is not packed, so it cannot be streamed\n\n"
        "hint: mode: download, or launch data pack DIR --to PACKED and push that\n"
    )
    planned = launching.type("plan", launching.write_job(text.format("photos")))
    assert "d = photos@1 (1 file, 2 B, stream)" in planned.out, planned.err


def test_a_run_pushes_before_it_is_submitted_and_equal_content_once(
    launching: Launching, job: str, store: MemoryStore
) -> None:
    planned = inputs_of(launching, job)
    folder = Path(job).parent
    first = launching.type("run", job, "--detach")
    assert first.code == 0, first.err
    assert [line for line in first.err.splitlines() if line.startswith("pushed")] == [
        f"pushed {folder}/words as mine-words@1",
        f"pushed {folder}/list.txt as mine-list@1",
    ]
    assert planned["list"] == InputSpec(
        dataset=DatasetVersion(
            name="mine-list",
            version=1,
            digest=planned["list"].dataset.digest,
            files=1,
            bytes=5,
        ),
        mode="mount",
        file="list.txt",
        source=InputSource(path=f"{folder}/list.txt", missing_files=1, missing_bytes=5),
    )
    # The same job typed twice is the same request, whatever was pushed meanwhile.
    submitted = FakeEngine.submitted[0][0].spec
    assert submitted.inputs == {
        name: msgspec.structs.replace(each, source=InputSource(path=path))
        for (name, each), path in zip(
            planned.items(), [f"{folder}/words", f"{folder}/list.txt"], strict=True
        )
    }
    before = dict(store.blobs)
    second = launching.type("run", job, "--detach")
    assert ("pushed" in second.err, store.blobs) == (False, before)
    versions = [each.spec.inputs["words"].dataset.version for each, _ in FakeEngine.submitted]
    assert versions == [1, 1]


def test_inputs_do_not_travel_as_code(
    launching: Launching, job: str, store: MemoryStore, tmp_path: Path
) -> None:
    folder = Path(job).parent
    (folder / "words-too").touch()
    assert f"{folder} (3 files, " in launching.type("plan", job).out
    gangs = Gangs(tmp_path / "other")
    plan = push_inputs(plan_job(load_job(job), gangs.engine), gangs.engine)
    handle = gangs.engine.submit(plan, {})
    gangs.handles.append(handle)
    gangs.end()
    assert set(read_folder(Path(handle.run_dir) / "code")) == {"job.yaml", "train.py", "words-too"}
    listing = read_code(plan.spec, exclude=plan.spec.pushed_paths).listing
    assert [each.name for each in listing.files if "/" not in each.name] == [
        "job.yaml",
        "train.py",
        "words-too",
    ]


def test_a_rerun_takes_the_pinned_version_and_the_one_file(
    launching: Launching, job: str, store: MemoryStore
) -> None:
    assert launching.type("run", job, "--detach").code == 0
    (Path(job).parent / "words" / "c").write_text("new")
    before = dict(store.blobs)
    assert launching.type("rerun", "--detach").code == 0
    (first, _), (again, _) = FakeEngine.submitted
    expected = {
        name: msgspec.structs.replace(each, source=None) for name, each in first.spec.inputs.items()
    }
    assert (again.spec.inputs, store.blobs) == (expected, before)
    other = launching.type("rerun", "--set", "inputs.words=./job/words", "--detach")
    assert other.code == 0, other.err
    assert FakeEngine.submitted[-1][0].spec.inputs["words"].dataset.version == 2


def test_a_version_that_another_push_took_meanwhile_is_the_next(
    launching: Launching, job: str, store: MemoryStore
) -> None:
    taken: list[str] = []

    def take(name: str) -> None:
        if not taken and name == "_datasets/mine-words/1.json":
            taken.append(name)
            other = launching.folder / "other"
            make_folder(other, {"x": b"other"})
            assert data.Datasets(store).push(other, "mine-words").dataset.version == 1

    store.before_create = take
    typed = launching.type("run", job, "--detach")
    assert typed.code == 0, typed.err
    ((plan, _),) = FakeEngine.submitted
    assert plan.spec.inputs["words"].dataset.version == 2


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("link", "is a link to a place outside the pushed folder"),
        ("a\\b", "cannot be used in a dataset"),
    ],
)
def test_a_folder_that_no_dataset_can_hold_is_refused_by_the_plan(
    launching: Launching, job: str, store: MemoryStore, entry: str, message: str
) -> None:
    path = Path(job).parent / "words" / entry
    if entry == "link":
        path.symlink_to("/etc/hostname")
    else:
        path.touch()
    typed = launching.type("plan", job)
    assert (typed.code, message in typed.err) == (2, True)


def test_a_folder_that_holds_the_runs_of_the_stack_is_refused(
    launching: Launching, job: str, store: MemoryStore
) -> None:
    launching.workspace.mkdir(exist_ok=True)
    written = json.dumps(f"{launching.workspace}")
    typed = launching.type("plan", job, "--set", f"inputs.words={written}")
    assert typed.code == 2
    assert typed.err == (
        f"error: the input `{launching.workspace}` holds the runs of this stack "
        f"({launching.workspace})\n\nhint: put the data into a folder of its own\n"
    )


def test_the_outputs_of_a_run_can_be_an_input(
    launching: Launching, job: str, store: MemoryStore
) -> None:
    run = launching.add_run()
    outputs = make_folder(launching.workspace / "runs" / run / "outputs/model", {"weights": b"1"})
    typed = launching.type("run", job, "--set", f"inputs.words={outputs}", "--detach")
    assert typed.code == 0, typed.err
    assert FakeEngine.submitted[-1][0].spec.inputs["words"].dataset.files == 1


def test_a_list_of_arguments_takes_the_place_of_a_runs_own(
    launching: Launching, store: MemoryStore
) -> None:
    (launching.folder / "train.py").touch()
    job = launching.write_job(
        "name: a\nimage: pytorch\nscript: train.py\nargs: [train, --lr, 0.1]\n"
    )
    assert launching.type("run", job, "--detach").code == 0
    assert launching.type("rerun", "--set", "args=[test, 3]", "--detach").code == 0
    assert launching.type("rerun", "--set", "args.lr=0.2", "--detach").code == 0
    assert [plan.spec.command for plan, _ in FakeEngine.submitted] == [
        ("python", "train.py", "train", "--lr", "0.1"),
        ("python", "train.py", "test", "3"),
        ("python", "train.py", "test", "3", "--lr", "0.2"),
    ]


def test_arguments_of_a_command_that_is_no_python_program_are_not_guessed(
    launching: Launching, store: MemoryStore
) -> None:
    job = launching.write_job("name: a\nimage: pytorch\ncommand: [tool, one]\n")
    run = launching.type("run", job, "--detach").out.strip()
    typed = launching.type("rerun", "--set", "args=[two]", "--detach")
    assert (typed.code, typed.err) == (
        2,
        f"error: the command of {run} does not say which of its words are `args`\n\n"
        "hint: give all words by --set 'command=[...]'; it was: tool one\n",
    )


@pytest.mark.parametrize(
    ("job", "dataset"),
    [
        ("mine", "mine-words"),
        ("j" * 63, "jjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjj-f8046939"),
    ],
)
def test_the_dataset_of_an_input_has_a_name_that_datasets_may_have(job: str, dataset: str) -> None:
    assert dataset_name(job, "words") == dataset
    check_name(dataset)
