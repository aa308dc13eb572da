"""Reading job files: what is right, and every mistake with its place."""

import json
import sys
from pathlib import Path

import pytest

from jobs.contracts.errors import LaunchError, NotFound
from jobs.contracts.spec import JobFile, JobInput, JobLimits, JobOutput, JobRetry
from jobs.host.project import project_root
from jobs.jobfile.arguments import to_argv
from jobs.jobfile.find import CATALOG
from jobs.jobfile.read import CodeLocation, load_job
from tests.jobs.jobfile.conftest import HEAD, RUNS, load, mistake

WHOLE = """\
name: resnet50-imagenet
image: pytorch
launcher: horovod
module: trainer.pytorch.resnet50
args: {epochs: 90, lr: 1e-1, compile: true, image-size: [224], data: 1.10, weights: null}
cluster: gpu
nodes: max
processes_per_node: 4
inputs: {imagenet: {dataset: imagenet@3, mode: mount}}
outputs: {model: {}}
setup: ["echo hi"]
env: {OMP_NUM_THREADS: 4, DEBUG: true}
secrets: {WANDB_API_KEY: wandb-key}
limits: {wall_clock: 12h, cost: 200, hang: 30m}
retry: {max: 3, on: [preemption]}
shm_size: 8g
priority: high
experiment: imagenet
tags: {team: vision}
"""


def test_a_whole_job_file_is_read(folder):
    loaded = load(folder, WHOLE)
    assert loaded.job == JobFile(
        name="resnet50-imagenet",
        image="pytorch",
        launcher="horovod",
        module="trainer.pytorch.resnet50",
        # 1.10 keeps its zero: it goes to a program, not into a sum.
        args={
            "epochs": 90,
            "lr": "1e-1",
            "compile": True,
            "image-size": [224],
            "data": "1.10",
            "weights": None,
        },
        cluster="gpu",
        nodes="max",
        processes_per_node=4,
        inputs={"imagenet": JobInput(dataset="imagenet@3", mode="mount")},
        outputs={"model": JobOutput()},
        setup=("echo hi",),
        env={"OMP_NUM_THREADS": "4", "DEBUG": "true"},
        secrets={"WANDB_API_KEY": "wandb-key"},
        limits=JobLimits(wall_clock="12h", cost=200, hang="30m"),
        retry=JobRetry(max=3, on=("preemption",)),
        shm_size="8g",
        priority="high",
        experiment="imagenet",
        tags={"team": "vision"},
    )
    assert loaded.folder == folder
    assert loaded.code == CodeLocation(folder=str(project_root()), only=("trainer",))


def test_a_catalogs_job_takes_its_program_along_where_there_is_no_project(folder, monkeypatch):
    monkeypatch.setattr("jobs.host.project.is_project", lambda _: False)  # as an installed wheel is
    installed = Path(sys.modules["jobs"].__file__).parents[1]
    assert load_job("digits").code == CodeLocation(folder=str(installed), only=("trainer",))


def test_hang_may_be_off_in_a_file_and_on_the_command_line(folder):
    text = RUNS + "limits: {hang: off}\n"  # a truth value to YAML 1.1
    assert load(folder, text).job.limits == JobLimits(hang="off")
    assert load(folder, RUNS, "limits.hang=off").job.limits == JobLimits(hang="off")


def test_json_with_an_editors_schema_key_is_a_job_file_too(folder):
    (folder / "job.json").write_text(
        '{"$schema": "job-1.json", "name": "a", "image": "b", "command": ["c"]}'
    )
    assert load_job("job.json").job == JobFile(name="a", image="b", command=("c",))


def test_json_is_read_as_its_libraries_write_it_and_its_mistakes_have_places(folder):
    job = {"name": "a", "image": "b", "description": "\U0001f680 \\ é", "command": ["\U0001f680/c"]}
    read = JobFile(
        name="a", image="b", description=job["description"], command=tuple(job["command"])
    )
    for indent in (None, 2, "\t"):
        (folder / "job.json").write_text(json.dumps(job, indent=indent).replace("/", "\\/"))
        assert load_job("job.json").job == read
    (folder / "job.json").write_text(json.dumps(job | {"comand": 1}))
    column = len(json.dumps(job)) + 2
    with pytest.raises(LaunchError, match=rf"^job\.json:1:{column}: .*`comand`"):
        load_job("job.json")
    # In YAML the same is a backslash, or no escape at all.
    (folder / "job.yaml").write_text(HEAD + r"description: \ud83d\ude80" + "\ncommand: [c]\n")
    assert load_job("job.yaml").job.description == r"\ud83d\ude80"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            RUNS + "lancher: mpi\n",
            "job.yaml:4:1: unknown key `lancher`",
            "did you mean `launcher`?",
        ),
        (
            RUNS + "limits: {hangs: 1m}\n",
            "job.yaml:4:10: unknown key `limits.hangs`",
            "did you mean `hang`?",
        ),
        (
            RUNS + "processes-per-node: 2\n",
            "job.yaml:4:1: unknown key `processes-per-node`",
            "did you mean `processes_per_node`?",
        ),
        (
            RUNS + "nodes: two\n",
            "job.yaml:4:8: `nodes` has to be a whole number of at least 1 or `max`, "
            "and is the text `two`",
            "for example `nodes: 2`",
        ),
        (
            RUNS + "nodes: 0\n",
            "job.yaml:4:8: `nodes` has to be a whole number of at least 1 or `max`, "
            "and is the number `0`",
            "for example `nodes: 2`",
        ),
        (
            RUNS + "launcher: horvod\n",
            "job.yaml:4:11: `launcher` has to be `horovod`, `torch`, `tensorflow`, `mpi` or "
            "`none`, and is the text `horvod`",
            "did you mean `horovod`?",
        ),
        (
            RUNS + "setup: echo hi\n",
            "job.yaml:4:8: `setup` has to be a list, and is the text `echo hi`",
            "for example `setup: [text]`",
        ),
        (
            RUNS + "inputs: [digits]\n",
            "job.yaml:4:9: `inputs` has to be a mapping (`key: value`), and is a list",
            "for example `inputs: {MY_NAME: digits}`",
        ),
        (
            RUNS + "args: [a, [b]]\n",
            "job.yaml:4:11: `args[1]` has to be a whole number or a number or text, and is a list",
            "for example `- 2`",
        ),
        (
            RUNS + "args: 3\n",
            "job.yaml:4:7: `args` has to be a mapping (`key: value`) or a list, and is the number "
            "`3`",
            "for example `args: {text: true}`",
        ),
        (
            RUNS + "limits: {hang: soon}\n",
            "job.yaml:4:16: `limits.hang` has to be a duration such as `90s`, `30m` or `12h`, "
            "or `off`, and is the text `soon`",
            "for example `hang: 30m`",
        ),
        (
            RUNS + "limits: {hang: 0s}\n",
            "job.yaml:4:16: `limits.hang` has to be a duration such as `90s`, `30m` or `12h`, "
            "or `off`, and is the text `0s`",
            "for example `hang: 30m`",
        ),
        (
            RUNS + "limits: {wall_clock: 0.00h}\n",
            "job.yaml:4:22: `limits.wall_clock` has to be a duration such as `90s`, `30m` or "
            "`12h`, and is the text `0.00h`",
            "for example `wall_clock: 30m`",
        ),
        (
            RUNS + "args: {x: {y: 1}}\n",
            "job.yaml:4:11: `args.x` has to be true or false or a whole number or a number or "
            "text or a list, and is a mapping",
            "for example `x: true`",
        ),
        (
            RUNS + "env: {9lives: x}\n",
            "job.yaml:4:7: `9lives` in `env` has to be a variable's name (letters, digits, `_`)",
            "for example `MY_NAME: text`",
        ),
        (
            RUNS + "env: {A: }\n",
            "job.yaml:4:10: `env.A` has to be text, and is nothing",
            "for example `A: text`",
        ),
        (
            RUNS + "nodes: [1]\n",
            "job.yaml:4:8: `nodes` has to be a whole number of at least 1 or `max`, and is a list",
            "for example `nodes: 2`",
        ),
        (
            RUNS + "setup: [{a: b}]\n",
            "job.yaml:4:9: `setup[0]` has to be text, and is a mapping",
            "for example `- text`",
        ),
        (
            RUNS + "shm_size: big\n",
            "job.yaml:4:11: `shm_size` has to be a size such as `512m` or `8g`, "
            "and is the text `big`",
            "for example `shm_size: 8g`",
        ),
        (
            "name: a b\nimage: c\nscript: train.py\n",
            "job.yaml:1:7: `name` has to be a name (letters, digits, `.`, `_`, `-`; at most 63), "
            "and is the text `a b`",
            "for example `name: my-job`",
        ),
        ("name: a\nscript: train.py\n", "job.yaml:1:1: `image` is missing", "add `image: ...`"),
        (
            HEAD,
            "job.yaml:1:1: a job has one of `module`, `script`, `command`; here is none of them",
            "for your own program: `script: train.py`",
        ),
        (
            RUNS + "module: x\n",
            "job.yaml:1:1: a job has one of `module`, `script`, `command`; "
            "here is `module` and `script`",
            "for your own program: `script: train.py`",
        ),
        (
            RUNS + "parameter_servers: 1\n",
            "job.yaml:4:1: only the launcher `tensorflow` has them",
            "remove `parameter_servers`",
        ),
        (
            RUNS + "env: {RANK: 1}\n",
            "job.yaml:4:7: `RANK` is set by launch for every rank",
            "use another name",
        ),
        (
            RUNS + "env: {A: x}\nsecrets: {A: y}\n",
            "job.yaml:5:11: `A` is in `env`, too",
            "keep one of them",
        ),
        (
            "- a\n",
            "job.yaml:1:1: the job has to be a mapping (`key: value`), and is a list",
            "`key: value` lines; `launch schema job` prints all keys",
        ),
    ],
)
def test_a_mistake_is_named_with_line_and_column(folder, text, message, hint):
    assert mistake(folder, text) == (message, hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "inputs: {data: {dataset: a}, DATA: {dataset: b}}\n",
            "job.yaml:4:30: `data` and `DATA` are both TRAINYARD_INPUT_DATA",
        ),
        (
            "outputs:\n  Out: {}\n  oUT: {}\n",
            "job.yaml:6:3: `Out` and `oUT` are both TRAINYARD_OUTPUT_OUT",
        ),
    ],
)
def test_names_that_differ_by_case_alone_are_refused(folder, text, message):
    assert mistake(folder, RUNS + text) == (
        message,
        "give them names that differ by more than case",
    )


def test_an_input_may_be_called_as_an_output(folder):
    job = load(folder, RUNS + "inputs: {data: {dataset: a}}\noutputs: {DATA: {}}\n").job
    assert (list(job.inputs), list(job.outputs)) == (["data"], ["DATA"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("args: {x: !vault abc}\n", "job.yaml:4:11: the tag `!vault` has no meaning in a job file"),
        (
            'args: {x: "a\\0b"}\n',
            "job.yaml:4:11: arguments and variables cannot contain a NUL character",
        ),
        (
            'env: {"a\\0": b}\n',
            "job.yaml:4:7: arguments and variables cannot contain a NUL character",
        ),
    ],
)
def test_what_no_program_can_be_given_is_refused_with_its_place(folder, text, message):
    assert mistake(folder, RUNS + text)[0] == message


def test_what_can_be_no_path_is_refused(folder):
    long = "x" * 300
    hint = "paths are relative to the job file"
    assert mistake(folder, RUNS + f"code: {long}\n") == (
        f"job.yaml: `{'x' * 200}...` is not a path: File name too long",
        hint,
    )
    assert mistake(folder, HEAD + "script: ~nobody-at-all/x.py\n") == (
        "job.yaml: `~nobody-at-all/x.py` is not a path: Could not determine home directory.",
        hint,
    )
    with pytest.raises(
        LaunchError, match=r"^JOB: `~nobody-at-all/x.yaml` is not a path: Could not"
    ):
        load_job("~nobody-at-all/x.yaml")


@pytest.mark.parametrize(("length", "is_name"), [(63, True), (64, False)])
def test_a_name_has_63_characters_at_most(folder, length, is_name):
    text = f"name: {'n' * length}\nimage: i\nexperiment: {'e' * length}\ncommand: [a]\n"
    if is_name:
        loaded = load(folder, text)
        assert (loaded.job.name, loaded.job.experiment) == ("n" * 63, "e" * 63)
        return
    with pytest.raises(LaunchError) as caught:
        load(folder, text)
    assert caught.value.message.count("at most 63") == 2


def test_several_mistakes_are_named_at_once(folder):
    message, _ = mistake(folder, RUNS + "nods: 1\nlauncher: 5\n")
    assert message == (
        "2 mistakes:\n"
        "  job.yaml:4:1: unknown key `nods` (did you mean `nodes`?)\n"
        "  job.yaml:5:11: `launcher` has to be `horovod`, `torch`, `tensorflow`, `mpi` or `none`, "
        "and is the number `5` (for example `launcher: horovod`)"
    )


def test_overrides_are_checked_like_the_file_and_name_themselves(folder):
    loaded = load(folder, RUNS + "args: {epochs: 9}\n", "args.epochs=1", "args.lr=1e-3", nodes="2")
    assert (loaded.job.args, loaded.job.nodes) == ({"epochs": 1, "lr": "1e-3"}, 2)
    assert mistake(folder, RUNS, "argss.x=1") == (
        "--set argss.x=1: unknown key `argss`",
        "did you mean `args`?",
    )
    assert mistake(folder, RUNS, processes_per_node="few") == (
        "--processes-per-node few: `processes_per_node` has to be a whole number of at least 1 "
        "or `gpu`, and is the text `few`",
        "for example --processes-per-node 2",
    )
    assert mistake(folder, RUNS, "limits.wall_clock=banana") == (
        "--set limits.wall_clock=banana: `limits.wall_clock` has to be a duration such as `90s`, "
        "`30m` or `12h`, and is the text `banana`",
        "for example --set limits.wall_clock=30m",
    )


def test_arguments_in_a_mapping_are_the_numbers_as_written(folder):
    loaded = load(folder, RUNS + "args: {seed: 007, lr: 1.10}\n")
    assert to_argv(loaded.job.args) == ("--seed", "007", "--lr", "1.10")


def test_arguments_in_a_list_are_the_words_as_written(folder):
    loaded = load(folder, RUNS + "args: [train, --lr, 0.1, 1.10, 007, true, -3]\n")
    assert to_argv(loaded.job.args) == ("train", "--lr", "0.1", "1.10", "007", "true", "-3")
    assert load(folder, RUNS + "args: [3]\n", "args=[4, 5]").job.args == (4, 5)


def test_one_argument_of_a_list_cannot_be_set(folder):
    assert mistake(folder, RUNS + "args: [3, 1]\n", "args.epochs=3") == (
        "--set args.epochs=3: `args` is a list (job.yaml:4:1) and has no keys",
        "give the whole list: --set 'args=[a, b]'",
    )


@pytest.mark.parametrize(
    ("args", "override", "hint"),
    [
        ("", "epochs=1", "for an option of the program: --set args.epochs=1"),
        ("args: {batch-size: 4}\n", "batch_size=8", "{option}args.batch-size=8"),
        ("", "batch_size=8", "did you mean `shm_size`? {option}args.batch_size=8"),
        ("", "text=a b", "{option}'args.text=a b'"),
        ("", "optimizer.lr=1", "{option}args.optimizer.lr=1"),
        ("", "limit.hang=1", "did you mean `limits`?"),
    ],
)
def test_an_unknown_key_is_offered_as_an_option_of_the_program(folder, args, override, hint):
    told = hint.replace("{option}", "for an option of the program: --set ")
    key = override.partition("=")[0].partition(".")[0]
    message = f"--set {override}: unknown key `{key}`"
    assert mistake(folder, RUNS + args, override) == (message, told)


def test_an_unknown_key_is_no_option_where_args_are_words(folder):
    _, hint = mistake(folder, RUNS + "args: [3]\n", "epochs=1")
    assert hint.startswith("known are name, description, image, ")


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("digist", "there is no job `digist`", "did you mean `digits`?"),
        ("job", "there is no job `job`", "did you mean `job.yaml`?"),
        ("jop.yaml", "the job file `jop.yaml` does not exist", "did you mean `job.yaml`?"),
        ("./nothing/x", "the job file `./nothing/x` does not exist", None),
    ],
)
def test_an_unknown_job_names_the_nearest(folder, name, message, hint):
    (folder / "job.yaml").write_text(RUNS)
    with pytest.raises(NotFound) as caught:
        load_job(name)
    assert caught.value.message == message
    assert hint is None or caught.value.hint == hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sub.yaml", "type the path of a job file"),
        (".", "type the path of a job file in it: job.yaml"),
    ],
)
def test_a_folder_is_a_usage_mistake_and_names_a_job_file_in_it(folder, name, hint):
    (folder / "Pulumi.local.yaml").write_text("")
    (folder / "job.yaml").write_text(RUNS)
    (folder / "sub.yaml").mkdir()
    with pytest.raises(LaunchError) as caught:
        load_job(name)
    assert type(caught.value) is LaunchError
    assert (caught.value.message, caught.value.hint) == (
        f"`{name}` is a folder, not a job file",
        hint,
    )


def test_a_catalog_name_wins_over_nothing_and_its_place_names_the_catalog(folder):
    loaded = load_job("digits")
    assert (loaded.job.name, loaded.folder) == ("digits", CATALOG)
    with pytest.raises(LaunchError, match=r"^--nodes x: "):
        load_job("digits", (), {"nodes": "x"})


def test_a_file_that_is_no_utf8_is_refused(folder):
    Path("job.yaml").write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(LaunchError) as caught:
        load_job("job.yaml")
    assert caught.value.message == "the job file `job.yaml` is not UTF-8 text (byte 6)"
