"""`launch jobs`: the catalog as a list and one by one, with what is missing."""

from typing import get_args, get_type_hints

import msgspec
import pytest

from jobs.commands import data_programs
from jobs.contracts.errors import EnvironmentFailure
from jobs.jobfile.find import catalog_names
from jobs.jobfile.read import load_job, options_of_job
from jobs.launching import catalog
from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.launching import FakeEngine

DIGITS = """\
digits                          small CNN on handwritten digits (the demo's job)
                                needs image pytorch, dataset digits
                                takes epochs=8 batch-size=64 seed=1 ...
"""

OPTIONS = """\
  seed                 random seed of weights, order, augmentation and dropout
                       (default 1)
  output-dir           folder of what the program writes (default: ./outputs)
  log-every            steps between two lines of training metrics (default 10)
  checkpoint-dir       folder of the checkpoints, resumed from if it holds one;
                       else the run's own
"""


def only_pytorch(self, spec):
    if spec.image != "pytorch":
        message = f"image `{spec.image}` is not installed on this machine"
        raise EnvironmentFailure(message, hint=f"launch image install {spec.image}")


@pytest.fixture
def typing(launching, monkeypatch):
    """Types on a machine that has the runtime of pytorch alone."""
    monkeypatch.setattr(FakeEngine, "require_ready", only_pytorch)
    return launching


def having(monkeypatch, *names):
    monkeypatch.setattr(catalog, "dataset_names", lambda _: set(names))


def needs(job):
    return [(each["kind"], each["name"], each["is_there"]) for each in job["needs"]]


def test_the_list_fits_a_terminal_and_names_every_job(typing, monkeypatch):
    having(monkeypatch, "digits")
    typed = typing.type("jobs")
    assert typed.code == 0, typed.err
    lines = typed.out.splitlines()
    assert [line.split()[0] for line in lines if line[0] != " "] == catalog_names()
    assert max(map(len, lines)) <= 80
    assert typed.out.startswith(DIGITS)
    assert "needs image tensorflow (missing), dataset imagenet (missing)" in " ".join(
        typed.out.split()
    )
    assert "..." not in "".join(line for line in lines if " takes " not in line)


def test_json_says_what_is_missing_and_how_to_get_it(typing, monkeypatch):
    having(monkeypatch, "digits")
    found = {each["name"]: each for each in typing.type("jobs", "--json").json()}
    assert list(found) == catalog_names()
    assert needs(found["digits"]) == [("image", "pytorch", True), ("dataset", "digits", True)]
    keras = found["resnet50-keras"]
    assert needs(keras) == [("image", "tensorflow", False), ("dataset", "imagenet", False)]
    assert keras["args"] == load_job("resnet50-keras").job.args
    assert [each["commands"] for each in keras["needs"]] == [
        [["install the image", "launch image install tensorflow"]],
        [
            [
                "make the dataset",
                "launch data prepare imagenet --from archives --to data/imagenet",
            ],
            ["send it", f"launch data push data/imagenet imagenet --env {typing.env_file}"],
        ],
    ]


def test_one_job_is_shown_with_the_commands_that_get_what_is_missing(typing, monkeypatch):
    having(monkeypatch)
    monkeypatch.chdir(typing.folder)
    typed = typing.type_bare("jobs", "digits", "--env", "environment.json")
    described, options = typed.out.split("options\n")
    assert (typed.code, described) == (
        0,
        "job       digits\n"
        "about     small CNN on handwritten digits (the demo's job)\n"
        "program   trainer.pytorch.mnist\n"
        "image     pytorch\n"
        "dataset   digits (missing)\n"
        "launcher  horovod\n"
        "size      nodes 1, processes per node gpu\n"
        "args      --epochs 8 --batch-size 64 --seed 1 --strategy horovod\n"
        "outputs   model\n",
    )
    assert options.startswith(OPTIONS)
    assert max(map(len, options.splitlines())) <= 80
    assert typed.err == (
        "next\n"
        "├── make the dataset    launch data prepare digits --to data/digits\n"
        "├── send it             launch data push data/digits digits --env environment.json\n"
        "├── start it            launch run digits --env environment.json\n"
        "└── change an argument  launch run digits --env environment.json --set args.epochs=8\n"
    )


def test_a_job_without_arguments_names_one_that_its_program_takes(typing, monkeypatch):
    having(monkeypatch)
    typed = typing.type("jobs", "nccl-check")
    described = typed.out.partition("options\n")[0]
    assert "about     bandwidth of GPUs and nodes; names a slow one\n" in described
    assert not {"args", "trains"} & {line.split()[0] for line in described.splitlines()}
    assert typed.err.endswith(" --set args.repeats=20\n")
    assert not [line for line in typing.type("jobs").out.splitlines() if line.strip() == "takes"]


def test_json_gives_the_options_of_the_program(typing, monkeypatch):
    having(monkeypatch)
    found = typing.type("jobs", "digits", "--json").json()["options"]
    assert [each["name"] for each in found] == list(options_of_job("digits"))
    by_name = {each["name"]: each for each in found}
    assert [by_name["device"], by_name["checkpoint-every"]] == [
        {
            "name": "device",
            "kind": "choice",
            "text": "device to compute on",
            "default": "auto",
            "choices": ["auto", "cpu", "cuda"],
        },
        {
            "name": "checkpoint-every",
            "kind": "int",
            "text": "steps between two checkpoints; else one an epoch",
            "default": None,
            "choices": [],
        },
    ]


def test_a_name_that_the_catalog_lacks_is_told_with_the_nearest(typing):
    typed = typing.type("jobs", "digit")
    assert typed.code == 102
    assert typed.err == "error: the catalog has no job `digit`\n\nhint: did you mean `digits`?\n"


def test_without_an_environment_the_catalog_is_listed_all_the_same(launching):
    launching.env_file.unlink()
    typed = launching.type("jobs", "--json")
    assert typed.code == 0
    assert {each["is_there"] for job in typed.json() for each in job["needs"]} == {None}
    assert typed.err.startswith(f"warning: {launching.env_file}: No such file or directory; hint: ")


def test_a_store_that_is_down_is_not_started(launching):
    folder = launching.folder / "store"
    storage = msgspec.structs.replace(launching.environment.storage, folder=str(folder))
    launching.write_environment(msgspec.structs.replace(launching.environment, storage=storage))
    typed = launching.type("jobs", "digits")
    assert "dataset   digits (?)\n" in typed.out
    assert typed.err.startswith("warning: the blob store is not up: datasets marked (?) ")
    assert not folder.exists()


def test_images_of_a_cloud_stack_are_the_workspaces(launching, monkeypatch):
    having(monkeypatch, "digits")
    launching.write_environment(make_cloud_environment())
    typed = launching.type("jobs", "digits", "--json")
    assert needs(typed.json()) == [("image", "pytorch", True), ("dataset", "digits", True)]


def test_an_image_that_a_cloud_stack_lacks_is_pushed_to_it(launching, monkeypatch):
    having(monkeypatch, "digits")
    launching.write_environment(make_cloud_environment(stack="prod", images={}))
    (image, _) = launching.type("jobs", "digits", "--json").json()["needs"]
    push = f"launch image push pytorch --env {launching.env_file}"
    assert image == {
        "kind": "image",
        "name": "pytorch",
        "is_there": False,
        "commands": [["push the image", push]],
    }


@pytest.mark.parametrize("name", catalog_names())
def test_every_job_says_what_it_does_and_every_dataset_can_be_prepared(name):
    job = load_job(name).job
    assert 20 < len(job.description or "") <= 80 - 28
    for each in job.inputs.values():
        words = catalog.PREPARED[each.dataset or ""]
        assert words[0] in get_args(prepare_names())


def prepare_names():
    hints = get_type_hints(data_programs.prepare, include_extras=True)
    return get_args(hints["dataset"])[0]
