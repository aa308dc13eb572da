"""Which code a job file takes along: its script's, a notebook's, the named folder's, or none."""

import pytest

from jobs.contracts.errors import LaunchError
from jobs.jobfile.read import CodeLocation, load_job
from tests.jobs.jobfile.conftest import HEAD, RUNS, load, mistake


def test_a_scripts_code_is_the_folder_of_its_job_file(folder):
    assert load(folder, RUNS).code == CodeLocation(folder=str(folder), script="train.py")


def test_a_script_is_found_inside_the_code_that_is_named(folder):
    (folder / "src").mkdir()
    (folder / "src" / "go.py").write_text("")
    loaded = load(folder, HEAD + "script: src/go.py\ncode: src\n")
    assert loaded.code == CodeLocation(folder=str(folder / "src"), script="go.py")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            HEAD + "script: trian.py\n",
            "job.yaml: the script `trian.py` is not there ({folder}/trian.py)",
            "did you mean `train.py`?",
        ),
        (
            HEAD + "script: ../x.py\n",
            "job.yaml: the script `../x.py` is not there ({above}/x.py)",
            "paths are relative to the job file",
        ),
        (
            RUNS + "code: src\n",
            "job.yaml: the folder `code: src` is not there ({folder}/src)",
            "paths are relative to the job file",
        ),
        (
            RUNS + "code: train.py\n",
            "job.yaml: the folder `code: train.py` is not a folder ({folder}/train.py)",
            "paths are relative to the job file",
        ),
        (
            RUNS + "code: sub\n",
            "job.yaml: the script `train.py` is outside the copied folder ({folder}/sub)",
            "choose a folder that contains it, e.g. `code: ..`",
        ),
        (
            HEAD + "command: [python, train.py]\n",
            "job.yaml: `train.py` lies beside the job file, but the job has no `code:`",
            "add `code: .` to copy the job file's folder",
        ),
        (
            HEAD + "module: train\n",
            "job.yaml: `train.py` lies beside the job file, but the job has no `code:`",
            "add `code: .` to copy the job file's folder",
        ),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(folder, text, message, hint):
    (folder / "sub").mkdir()
    expected = message.format(folder=folder, above=folder.parent)
    assert mistake(folder, text) == (expected, hint)


@pytest.mark.parametrize(
    ("program", "place"),
    [
        ("command: [python3, Train.ipynb]", "job.yaml:3:1"),
        ("command: [python3, -u, Train.ipynb]", "job.yaml:3:1"),
        ("command: [/usr/bin/python3, -m, trace, Train.ipynb]", "job.yaml:3:1"),
        ("command: [env, A=1, python, Train.ipynb]", "job.yaml:3:1"),
    ],
)
def test_a_notebook_is_refused_as_a_file_of_pythons(folder, program, place):
    (folder / "Train.ipynb").write_text('{"cells": []}')
    assert mistake(folder, f"{HEAD}{program}\ncode: .\n") == (
        f"{place}: `Train.ipynb` is a notebook, which Python cannot run",
        "`script: Train.ipynb` in place of `command`",
    )


@pytest.mark.parametrize(
    "words",
    ["papermill, Train.ipynb, out.ipynb", "/opt/bin/jupyter-nbconvert, Train.ipynb", "python, -m, jupyter, execute, Train.ipynb"],
)  # fmt: skip
def test_a_program_that_executes_notebooks_may_have_one(folder, words):
    (folder / "Train.ipynb").write_text('{"cells": []}')
    (folder / "job.yaml").write_text(f"{HEAD}command: [{words}]\ncode: .\n")
    assert load_job("job.yaml").job.command == tuple(words.split(", "))


def test_a_notebook_in_place_of_a_job_needs_a_file_with_what_executes_it(folder):
    notebook = folder / "Train.ipynb"
    notebook.write_text('{"cells": [{"cell_type": "code", "source": ["import torch"]}]}')
    with pytest.raises(LaunchError) as error:
        load_job(str(notebook))
    needed = folder / "requirements.txt"
    assert (error.value.message, error.value.hint) == (
        f"the image of `{notebook}` cannot execute notebooks, and there is no requirements.txt",
        rf"printf 'nbclient\nipykernel\n' > {needed}",
    )
    needed.write_text("nbclient\nipykernel\n")
    loaded = load_job(str(notebook), arguments=["--batch-size", "3"])
    job = loaded.job
    assert (job.name, job.image, job.launcher) == ("Train", "pytorch", "none")
    assert (job.script, job.args, job.processes_per_node) == ("Train.ipynb", {"batch-size": 3}, 1)
    assert job.requirements == "requirements.txt"


def test_a_trainer_of_the_users_own_is_never_replaced_by_ours(folder):
    (folder / "trainer").mkdir()
    (folder / "trainer" / "mine.py").write_text("")
    text = HEAD + "module: trainer.mine\n"
    assert mistake(folder, text) == (
        "job.yaml: `trainer` lies beside the job file, but the job has no `code:`",
        "add `code: .` to copy the job file's folder",
    )
    # Nothing is known of the options of another's program.
    own = load(folder, text + "code: .\nargs: {anything: 1}\n")
    assert own.code == CodeLocation(folder=str(folder))


@pytest.mark.parametrize("home", ["", "linked"])
def test_a_home_folder_is_not_copied_unasked(folder, monkeypatch, home):
    (folder / "linked").symlink_to(folder)
    monkeypatch.setenv("HOME", str(folder / home))
    message, hint = mistake(folder, RUNS)
    assert message == f"job.yaml: without `code:` all files of `{folder}` would be copied"
    assert hint == "put the job file and the script into their own folder"
    assert load(folder, RUNS + "code: .\n").code is not None


def test_a_command_with_nothing_beside_it_takes_no_code_along(folder):
    assert load(folder, HEAD + "command: [python, -c, 'print(1)']\n").code is None
