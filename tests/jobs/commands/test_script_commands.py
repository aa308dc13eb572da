"""`launch run` and `plan` of a script, and `launch init`, as they are typed."""

import pytest

from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.launching import FakeEngine

DDP = "from torch.distributed import init_process_group\n"
SAID = "train.py uses torch.distributed: image pytorch, launcher torch, one process per GPU\n"
WRITTEN = """\
name: train                 # in `launch ls`
image: pytorch              # the script uses torch.distributed
launcher: torch             # horovod, torch, tensorflow, mpi or none
script: train.py
code: .                     # this folder travels, except files in .gitignore
args:
  epochs: 3
processes_per_node: gpu     # one per GPU; without GPUs, the cluster's own number
outputs: {model: {}}        # a folder: TRAINYARD_OUTPUT_MODEL
"""


@pytest.fixture
def typing(launching):
    """Types in a folder that holds train.py."""
    (launching.folder / "train.py").write_text(DDP)

    def typed(*words, script_words=()):
        env = ("--env", "environment.json")
        behind = ("--", *script_words) if script_words else ()
        return launching.type_bare(*words, *env, *behind)

    return typed


def test_a_script_is_planned_without_a_job_file(launching, typing):
    typed = typing("plan", "train.py", "--nodes", "2", "--json", script_words=["--epochs", "3"])
    spec = typed.json()["spec"]
    assert (typed.code, typed.err) == (0, SAID)
    decided = {key: spec[key] for key in ("name", "image", "launcher", "command", "code", "nodes")}
    assert decided == {
        "name": "train",
        "image": "pytorch",
        "launcher": "torch",
        "command": ["python", "train.py", "--epochs", "3"],
        "code": str(launching.folder),
        "nodes": 2,
    }
    assert (spec["processes_per_node"], spec["outputs"]) == (4, ["model"])


def test_a_script_is_run_as_it_is_planned(typing):
    planned = typing("plan", "train.py", "--set", "env.A=b", "--json", script_words=["3", "-v"])
    typed = typing("run", "train.py", "--set", "env.A=b", "--detach", script_words=["3", "-v"])
    assert typed.code == 0, typed.err
    assert typed.err.startswith(SAID)
    [(plan, _)] = FakeEngine.submitted
    assert plan.spec.command == ("python", "train.py", "3", "-v")
    assert planned.json()["spec"]["command"] == list(plan.spec.command)
    dry = typing("run", "train.py", "--dry-run", script_words=["3", "-v"])
    assert (dry.code, "python train.py 3 -v" in dry.out) == (0, True)


def test_a_plan_says_that_results_beside_the_script_do_not_travel(launching, typing):
    """There programs that are run by hand write, as Hydra does."""
    (launching.folder / "outputs").mkdir()
    (launching.folder / "outputs" / "log.txt").write_text("x")
    lines = typing("plan", "train.py").out.splitlines()
    assert [line.partition(" ")[2].strip() for line in lines if line.startswith("left out")] == [
        "out  outputs/ (never travels: in the folder of a rank it is what comes back from the run)"
    ]


def test_an_option_of_the_script_before_the_dashes_is_told_where_it_belongs(launching, typing):
    typed = typing("run", "train.py", "--epochs", "3")
    assert typed.code == 2
    assert "no such option: --epochs" in typed.err
    assert "hint: see `launch run --help`; options of a script stand behind `--`" in typed.err
    typed = typing("run", "digits", "epochs")
    assert typed.code == 2
    assert "unexpected argument: epochs; `digits` is not a script" in typed.err


@pytest.mark.parametrize(
    ("option", "assignment"),
    [("--name", "name"), ("--tag", "tags.KEY"), ("--experiment", "experiment")],
)
def test_an_option_named_like_a_key_of_the_job_is_told_how_it_is_set(typing, option, assignment):
    typed = typing("run", "train.py", option, "x")
    assert (typed.code, typed.err) == (
        2,
        f"error: no such option: {option}\n\n"
        f"hint: --set {assignment}=VALUE sets the key of the job; "
        "options of a script stand behind `--`\n",
    )


def test_init_writes_a_job_file_that_plans_as_the_script_does(launching, typing):
    typed = typing("init", "train.py", script_words=["--epochs", "3"])
    assert (typed.code, typed.out) == (0, "job.yaml\n")
    assert typed.err == (
        f"{SAID}next\n"
        "├── show what would start  launch plan job.yaml --env environment.json\n"
        "└── start it               launch run job.yaml --env environment.json\n"
    )
    assert (launching.folder / "job.yaml").read_text() == WRITTEN
    of_script = typing("plan", "train.py", "--json", script_words=["--epochs", "3"]).json()
    assert typing("plan", "job.yaml", "--json").json() == of_script


def test_init_overwrites_nothing(launching, typing):
    (launching.folder / "job.yaml").write_text("mine")
    typed = typing("init", "train.py")
    assert (typed.code, typed.out) == (2, "")
    assert typed.err.endswith(
        "error: `job.yaml` exists\n\nhint: --into job-2.yaml, or remove it first\n"
    )
    assert (launching.folder / "job.yaml").read_text() == "mine"
    assert typing("init", "train.py", "--into", "job-2.yaml").code == 0


def test_init_into_another_folder_writes_paths_that_lead_back(launching, typing):
    (launching.folder / "jobs").mkdir()
    assert typing("init", "train.py", "--into", "jobs/x.yml", script_words=["7"]).code == 0
    spec = typing("plan", "jobs/x.yml", "--json").json()["spec"]
    assert (spec["command"], spec["code"]) == (["python", "train.py", "7"], str(launching.folder))
    deep = launching.folder / "jobs" / "a folder with a long name"
    deep.mkdir()
    assert typing("init", "train.py", "--into", f"jobs/{deep.name}/y.yml").code == 0
    spec = typing("plan", f"jobs/{deep.name}/y.yml", "--json").json()["spec"]
    assert (spec["command"], spec["code"]) == (["python", "train.py"], str(launching.folder))
    aside = launching.folder / "somewhere with a long name"
    aside.mkdir()
    (aside / "train.py").write_text(DDP)
    assert typing("init", str(aside / "train.py"), "--into", "jobs/z.yml").code == 0
    assert typing("plan", "jobs/z.yml", "--json").json()["spec"]["code"] == str(aside)
    assert typing("init", "train.py", "--into", "jobs/y.yml").code == 0
    spec = typing("plan", "jobs/y.yml", "--json").json()["spec"]
    assert (spec["command"], spec["code"]) == (["python", "train.py"], str(launching.folder))


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (["digits"], 2, "`digits` is not a Python script", "launch init train.py; `launch jobs`"),
        (["trian.py"], 102, "the script `trian.py` does not exist", "did you mean `train.py`?"),
        (["train.py", "--into", "x.py"], 2, "`x.py` is not a valid name for a job file", "--into x.yaml"),
        (["train.py", "--into", "no/x.yaml"], 1, "cannot write `no/x.yaml`: No such file", "--into FILE"),
        (["empty.py"], 2, "empty.py:1: the script is not valid Python", "correct the syntax"),
        ([], 2, "the following arguments are required: SCRIPT", "see `launch init --help`"),
    ],
)  # fmt: skip
def test_what_init_cannot_write_is_told(launching, typing, words, code, message, hint):
    (launching.folder / "empty.py").write_text("(")
    typed = typing("init", *words)
    assert typed.code == code
    assert f"error: {message}" in typed.err
    assert f"hint: {hint}" in typed.err


def test_init_writes_where_the_stack_cannot_plan_and_says_so(launching, typing):
    typed = typing("init", "train.py", script_words=["--epochs", "3"])
    (launching.folder / "job.yaml").unlink()
    (launching.folder / "environment.json").unlink()
    typed = typing("init", "train.py", script_words=["--epochs", "3"])
    assert (typed.code, typed.out) == (0, "job.yaml\n")
    assert "cannot plan this job: environment.json: No such file or directory; hint: " in typed.err
    assert (launching.folder / "job.yaml").read_text() == WRITTEN


@pytest.mark.parametrize("engine", ["azureml", "azureml_v1"])
def test_a_script_is_planned_alike_on_azure(launching, typing, engine):
    launching.write_environment(make_cloud_environment(engine=engine))
    assert typing("init", "train.py", script_words=["--epochs", "3"]).code == 0
    of_script = typing("plan", "train.py", "--json", script_words=["--epochs", "3"])
    of_file = typing("plan", "job.yaml", "--json")
    assert (of_script.code, of_file.code) == (0, 0), of_script.err
    spec = of_script.json()["spec"]
    assert spec == of_file.json()["spec"]
    assert (spec["command"], spec["launcher"]) == (["python", "train.py", "--epochs", "3"], "torch")


def test_what_the_command_line_changes_of_a_scripts_job_is_said(launching):
    (launching.folder / "train.py").write_text("import torch\n")
    words = ("--set", "image=tensorflow", "--set", "launcher=horovod", "--processes-per-node", "2")
    typed = launching.type("plan", "train.py", *words)
    assert typed.err.splitlines()[0] == (
        "train.py uses torch: image pytorch, launcher none, one process; the command line changes "
        "this: image tensorflow, launcher horovod, processes_per_node 2"
    )
    same = launching.type("plan", "train.py", "--set", "image=pytorch")
    assert (
        same.err.splitlines()[0] == "train.py uses torch: image pytorch, launcher none, one process"
    )
