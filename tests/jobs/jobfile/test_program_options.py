"""A wrong option of one of our programs is a mistake in the job file, found before anything starts."""

import pytest

from jobs.contracts.errors import LaunchError
from jobs.host.project import project_root
from jobs.jobfile.program_options import Option, read_options
from jobs.jobfile.read import load_job

HEAD = "name: x\nimage: pytorch\nmodule: trainer.pytorch.hymenoptera\n"
PRECISION = "precision of the network's arithmetic; weights are fp32"


def mistake(folder, text, *overrides):
    (folder / "job.yaml").write_text(text)
    with pytest.raises(LaunchError) as caught:
        load_job("job.yaml", overrides)
    return caught.value.message, caught.value.hint


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        ("epohcs: 3", "the program has no option `epohcs`", "did you mean `epochs`?"),
        ("log_every: 3", "the program has no option `log_every`", "did you mean `log-every`?"),
        (
            "batch_size: 3",
            "the program has no option `batch_size`",
            "did you mean `image-size` or `batch-per-rank` or `world-size`?",
        ),
        (
            "epochs: three",
            "the option `epochs` takes a whole number, not `three`",
            "`epochs`: passes over the training set (default: 25)",
        ),
        (
            "epochs: 2.5",
            "the option `epochs` takes a whole number, not `2.5`",
            "`epochs`: passes over the training set (default: 25)",
        ),
        (
            "epochs: true",
            "the option `epochs` takes a value, not `true`",
            "`epochs`: passes over the training set (default: 25)",
        ),
        (
            "lr: [1, 2]",
            "the option `lr` takes one value, not `[1, 2]`",
            "`lr`: peak learning rate for 256 pictures a step (default: 0.06)",
        ),
        (
            "lr: 0",
            "the option `lr` takes a number above 0, not `0`",
            "`lr`: peak learning rate for 256 pictures a step (default: 0.06)",
        ),
        (
            "image-size: 16",
            "the option `image-size` takes 32 or more, not `16`",
            "`image-size`: side of the network's input, in pixels (default: 224)",
        ),
        (
            "precision: fp8",
            "the option `precision` takes one of fp32, bf16, fp16, not `fp8`",
            f"`precision`: {PRECISION} (default: fp32)",
        ),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_allowed(folder, args, message, hint):
    text = f"{HEAD}args:\n  seed: 1\n  {args}\n"
    where = 5 if args.partition(":")[0] == "seed" else 6
    assert mistake(folder, text) == (f"job.yaml:{where}:3: {message}", hint)


def test_a_switch_that_is_on_is_turned_off_by_its_other_name(folder):
    head = HEAD.replace("hymenoptera", "maskrcnn")
    expected = (
        "job.yaml:4:8: `evaluate: false` is left out, and the program's default is true",
        "no-evaluate: true",
    )
    assert mistake(folder, f"{head}args: {{evaluate: false}}\n") == expected
    (folder / "job.yaml").write_text(f"{head}args: {{no-evaluate: true}}\n")
    assert load_job("job.yaml").job.args == {"no-evaluate": True}
    assert mistake(folder, f"{head}args: {{evaluate: 1}}\n") == (
        "job.yaml:4:8: the option `evaluate` takes true or false, not `1`",
        "`evaluate`: COCO's figures after each epoch and at the end (default: True)",
    )


def test_an_override_names_itself(folder):
    with pytest.raises(LaunchError, match=r"--set args\.epochs=x: the option `epochs` takes"):
        load_job("hymenoptera", ["args.epochs=x"])


def test_a_program_that_is_not_there_names_the_nearest(folder):
    text = HEAD.replace("hymenoptera", "hymenptera")
    assert mistake(folder, text) == (
        f"there is no program `trainer.pytorch.hymenptera` in {project_root()}",
        "did you mean `trainer.pytorch.hymenoptera`?",
    )


def test_values_that_are_decided_later_and_those_left_out_are_not_judged(folder):
    args = "{epochs: '${env.N}', lr: null, data: '${inputs.x}', precision: []}"
    inputs = "inputs: {x: {dataset: digits}}"
    (folder / "job.yaml").write_text(f"{HEAD}args: {args}\n{inputs}\n")
    assert load_job("job.yaml").job.args["epochs"] == "${env.N}"


def test_options_are_read_with_those_of_the_classes_that_they_extend():
    options = read_options("trainer.tfkeras.resnet50", project_root())
    assert [options[name] for name in ("keep-last", "batch-per-rank", "strategy", "xla")] == [
        Option(
            name="keep-last",
            kind="int",
            text="newest checkpoints that are kept",
            default=3,
            above=0,
        ),
        Option(
            name="batch-per-rank",
            kind="int",
            text="pictures per step on each rank",
            default=32,
            least=2,
        ),
        Option(
            name="strategy",
            kind="choice",
            text="how ranks work together",
            choices=("single", "horovod", "mwms"),
        ),
        Option(name="xla", kind="bool", text="let XLA compile the network", default=False),
    ]


def test_a_learning_rate_that_goes_by_the_optimizer_is_above_0_all_the_same():
    assert read_options("trainer.pytorch.resnet50", project_root())["lr"] == Option(
        name="lr",
        kind="float",
        text="peak learning rate for 256 pictures a step (default: 0.1 for sgd, 0.001 for "
        "adamw and lamb)",
        above=0,
    )


def test_the_steps_of_maskrcnn_end_a_training_no_later_than_its_epochs():
    """As the smaller of both counts does (docs/training-maskrcnn.md)."""
    options = read_options("trainer.pytorch.maskrcnn", project_root())
    told = "end after this many steps, or after --epochs if that is earlier"
    assert options["max-steps"].text == told


def test_a_program_without_options_of_this_kind_is_left_to_itself():
    assert read_options("trainer.data.pack", project_root()) == {}
