"""From ImageNet's archives to training on it: every step on the local stack.

    archives -> prepare -> pack -> push -> register -> ResNet-50 on two ranks

Archives, pictures and network input are small; Pulumi, Azurite, the ranks and the JPEGs are real.
"""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import ContainerClient

from infra.local import azurite_server
from jobs.images.runtimes import PROJECT
from tests import needs
from tests.fakes.ilsvrc import write_archives
from tests.fakes.picture_runs import Trained, read_run, train
from tests.folders import read_folder
from tests.integration.local_stack.conftest import LocalProject, fresh_project
from tests.ports import free_port
from trainer.data.synthesize.stripes import make_pictures

MODULE = "trainer.pytorch.classifier"
NUM_CLASSES, TRAIN_EACH, NUM_VAL = 2, 6, 5
JOB = """
name: classifier-{mode}
image: pytorch
launcher: torch
module: trainer.pytorch.classifier
args:
  network: resnet18
  strategy: ddp
  epochs: 1
  warmup-epochs: 0
  batch-per-rank: 3
  image-size: 32
  log-every: 1
nodes: 2  # each of which has a core of its own
processes_per_node: 1
inputs:
  imagenet: {{dataset: {dataset}, mode: {mode}}}
outputs:
  model: {{}}
env: {{OMP_NUM_THREADS: '1'}}
"""

PREPARE_JOB = """
name: prepare-imagenet
image: pytorch
code: .
processes_per_node: 1
inputs: {archives: {dataset: archives@1, mode: download}}
outputs: {sets: {}}
command:
  - sh
  - -c
  - >-
    python -m trainer.data.prepare imagenet --from "$TRAINYARD_INPUT_ARCHIVES"
    --checksums "$TRAINYARD_INPUT_ARCHIVES/SUMS" --to "$TRAINYARD_OUTPUT_SETS/imagenet"
"""


@dataclass(frozen=True)
class Stored:
    """The local stack with one packed dataset in its store, under two names."""

    project: LocalProject
    packed: Path
    pushed: dict[str, Any]
    registered: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run that is over."""

    folder: Path
    record: dict[str, Any]
    trained: Trained


@pytest.fixture(scope="module", autouse=True)
def _runtime() -> None:
    needs.runtime("pytorch")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Iterator[LocalProject]:
    with fresh_project(tmp_path_factory.mktemp("project"), free_port()) as made:
        # The job's code, as in a clone; the programs that `launch data` starts are the clone's own.
        shutil.copytree(
            PROJECT / "trainer", made.root / "trainer", ignore=shutil.ignore_patterns("__pycache__")
        )
        made.up()
        yield made


@pytest.fixture(scope="module")
def stored(project) -> Stored:
    """What the commands of the guide leave behind, typed one after the other."""
    root = project.root
    made = root / "made"
    make_pictures(made, num_classes=2, num_train=12, num_val=5, size=48, seed=5)
    jpegs = (file.read_bytes() for file in sorted(made.rglob("*.jpg")))
    write_archives(
        root / "archives",
        num_classes=NUM_CLASSES,
        num_train=TRAIN_EACH,
        num_val=NUM_VAL,
        pictures=jpegs,
    )
    sums = ("--checksums", "archives/SUMS")
    project.launch("data", "prepare", "imagenet", "--from", "archives", "--to", "imagenet", *sums)
    project.launch("data", "pack", "imagenet", "--to", "packed", "--shard-size", "8KiB")
    pushed = json.loads(project.launch("data", "push", "packed", "imagenet", "--json").stdout)
    put_by_others(project, root / "packed", "raw/photos")
    registered = project.launch("data", "register", "photos", "raw/photos", "--json").stdout
    return Stored(project, root / "packed", pushed, json.loads(registered))


def put_by_others(project: LocalProject, folder: Path, prefix: str) -> None:
    """Have the files in the store already, as somebody else's tool left them there."""
    key = (project.storage / azurite_server.KEY_FILE).read_text()
    with ContainerClient(
        f"http://127.0.0.1:{project.settings['storage']['port']}/trainyard",
        "data",
        credential={"account_name": "trainyard", "account_key": key},
    ) as container:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                name = f"{prefix}/{file.relative_to(folder).as_posix()}"
                container.upload_blob(name, file.read_bytes())


def run(stored: Stored, dataset: str, mode: str) -> Run:
    """Type `launch run` and wait for its good end."""
    job = stored.project.root / f"{mode}.yaml"
    job.write_text(JOB.format(mode=mode, dataset=dataset))
    said = stored.project.launch("run", job.name, "-s", "local")
    (folder,) = stored.project.workspace.glob("runs/*")
    record = json.loads((folder / "run.json").read_text())
    kept = folder.rename(stored.project.root / f"run-{mode}")
    assert "Traceback" not in said.stderr
    return Run(folder=kept, record=record, trained=read_run(kept))


@pytest.fixture(scope="module")
def streamed(stored) -> Run:
    """A run that reads what was registered in its place."""
    return run(stored, "photos@1", "stream")


@pytest.fixture(scope="module")
def fetched(stored) -> dict[str, Run]:
    """A run in each of the other modes."""
    return {
        "mount": run(stored, "imagenet@1", "mount"),
        "download": run(stored, "imagenet", "download"),
    }


def test_the_dataset_is_packed_pushed_and_registered(stored):
    index = json.loads((stored.packed / "index.json").read_text())
    splits = {name: split["samples"] for name, split in index["splits"].items()}
    assert splits == {"train": NUM_CLASSES * TRAIN_EACH, "val": NUM_VAL}
    assert len(index["splits"]["train"]["shards"]) > 1
    assert index["classes"] == ["n01440764", "n01440771"]
    facts = ("version", "digest", "bytes")
    assert [stored.registered[key] for key in facts] == [stored.pushed[key] for key in facts]


FACTS = ("world_size", "train_images", "val_images", "val_top1", "weights_sha256")


def test_a_stream_trains_the_network_of_the_folder_to_the_bit(streamed, stored, zygote, tmp_path):
    """By the arguments of the job file, on the folder that was packed."""
    arguments = ("--epochs", "1", "--warmup-epochs", "0", "--batch-per-rank", "3")
    arguments += ("--image-size", "32", "--log-every", "1", "--data", str(stored.packed))
    arguments += ("--network", "resnet18")
    by_folder = train(zygote, MODULE, *arguments, folder=tmp_path / "run", size=2)
    losses = streamed.trained.curve("train", "loss")
    assert [step for step, _ in losses] == [1, 2]
    assert losses == by_folder.curve("train", "loss")
    summaries = [[each.summary[key] for key in FACTS] for each in (streamed.trained, by_folder)]
    assert summaries[0][:3] == [2, 12, 5]
    assert summaries[1] == summaries[0]


def dataset_of(run: Run) -> tuple[str, str, int, str]:
    """Mode, name, version and digest of what the record says that a run was trained on."""
    given = run.record["plan"]["spec"]["inputs"]["imagenet"]
    dataset = given["dataset"]
    return given["mode"], dataset["name"], dataset["version"], dataset["digest"]


def test_the_record_says_which_content_was_trained_on(streamed, stored):
    losses = streamed.trained.curve("train", "loss")
    assert [step for step, _ in losses] == [1, 2]
    assert [streamed.trained.summary[key] for key in FACTS[:3]] == [2, 12, 5]
    assert len(set(streamed.trained.summary["weights_sha256"])) == 1
    assert dataset_of(streamed) == ("stream", "photos", 1, stored.pushed["digest"])


@pytest.mark.faults
def test_all_modes_train_the_same_network_to_the_bit_and_their_records_say_on_what(
    streamed, fetched, stored
):
    for mode, run in fetched.items():
        assert run.trained.curve("train", "loss") == streamed.trained.curve("train", "loss")
        summaries = [[each.trained.summary[key] for key in FACTS] for each in (run, streamed)]
        assert summaries[0] == summaries[1]
        assert dataset_of(run) == (mode, "imagenet", 1, stored.pushed["digest"])
    kept = stored.project.workspace / "inputs" / stored.pushed["digest"]
    assert {file.name for file in kept.rglob("*.tar")} == shards_of(stored)


def shards_of(stored: Stored) -> set[str]:
    """Names of the shards that were pushed."""
    return {file.name for file in stored.packed.rglob("*.tar")}


def test_what_was_streamed_was_never_downloaded_and_is_kept_in_blocks(streamed, stored):
    workspace = stored.project.workspace
    kept = workspace / "inputs" / f"{stored.pushed['digest']}.stream"
    assert kept.is_dir()
    assert list(kept.rglob("*.tar")) == []
    assert "train-000000.tar" in shards_of(stored)
    blocks = [file.name for file in (workspace / "cache").glob("*/*")]
    assert len(blocks) == len([*stored.packed.rglob("*.tar")])


def test_nothing_of_the_run_lets_anybody_into_the_store(streamed):
    inputs = streamed.folder / "inputs"
    assert stat.S_IMODE(inputs.stat().st_mode) == 0o700
    assert sorted(file.name for file in inputs.iterdir()) == ["imagenet", "imagenet.stream.json"]
    for file in streamed.folder.rglob("*"):
        if file.is_file():
            assert b"sig=" not in file.read_bytes(), file


@pytest.mark.faults
def test_a_job_prepares_what_the_command_does(stored):
    project = stored.project
    project.launch("data", "push", "archives", "archives")
    (project.root / "prepare.yaml").write_text(PREPARE_JOB)
    project.launch("run", "prepare.yaml", "-s", "local")
    (folder,) = project.workspace.glob("runs/*")
    kept = folder.rename(project.root / "run-prepare")
    assert read_folder(kept / "outputs" / "sets") == {
        f"imagenet/{name}": content
        for name, content in read_folder(project.root / "imagenet").items()
    }


def test_class_folders_are_not_streamed_and_the_plan_says_so(stored):
    project = stored.project
    project.launch("data", "push", "imagenet", "folders")
    (project.root / "refused.yaml").write_text(JOB.format(mode="stream", dataset="folders"))
    done = project.launch("plan", "refused.yaml", "-s", "local", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: input `imagenet`: `folders@1` is not packed, so it cannot be streamed\n\n"
        "hint: mode: download, or launch data pack DIR --to PACKED and push that\n"
    )


def test_the_plan_shows_mode_and_size(stored):
    (stored.project.root / "shown.yaml").write_text(JOB.format(mode="stream", dataset="photos"))
    done = stored.project.launch("plan", "shown.yaml", "-s", "local")
    (line,) = [line for line in done.stdout.splitlines() if "photos@1" in line]
    assert line.endswith(", stream)")
    assert f"{stored.registered['files']} files" in line
