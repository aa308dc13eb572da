"""The states of a job, and what may change of one, are those that Microsoft's own clients know."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.contracts.spec import RunState
from jobs.engines.azure_ml.states import STATES, judge
from tests import needs
from tests.environments.arm_models import read_models
from tests.fakes.azureml import records
from tests.fakes.azureml.jobs import MUTABLE
from tests.fakes.azureml.judge import BUNDLED, read_tables

# That of a client which can tell no other; shown in Azure ML's own word.
UNTOLD = {"Unknown"}
# What azure-ai-ml and azureml-core call the end of a job.
OVER = {"Completed", "Failed", "Canceled"}


@pytest.fixture(scope="module")
def newest() -> set[str]:
    """Of the models of our stacks' API version."""
    with needs.whole_environment():
        return read_models().values("JobStatus")


@pytest.fixture(scope="module")
def known(newest: set[str], sdk_python: Callable[[str], Path]) -> set[str]:
    """All states that a client of Microsoft's knows, of whatever version."""
    tables = (read_tables()[f"job@{version}"] for version in BUNDLED)
    older = {
        state
        for table in tables
        for state in table["classes"]["JobBaseProperties"]["attributes"]["status"]["enum"]
    }
    return newest | older | states_of_core(sdk_python("azureml_core"))


def states_of_core(python: Path) -> set[str]:
    """What azureml-core's text lists."""
    (file,) = python.parents[1].glob("lib/python*/site-packages/azureml/_restclient/constants.py")
    (listed,) = (
        each
        for each in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(each, ast.ClassDef) and each.name == "RunStatus"
    )
    lines = (each for each in listed.body if isinstance(each, ast.Assign))
    return {ast.literal_eval(each.value) for each in lines}


def test_no_state_is_missing_and_none_is_ours_alone(known: set[str]) -> None:
    assert STATES.keys() == known - UNTOLD
    over = {each for each in known if judge(each).state.is_terminal()}
    assert over == OVER
    assert {judge(each).state for each in UNTOLD} == {RunState.RUNNING}


def test_the_stand_ins_states_are_of_the_newest_models(newest: set[str]) -> None:
    assert newest >= records.STATES
    assert records.TERMINAL == OVER


def test_what_a_second_put_of_a_job_may_change() -> None:
    with needs.whole_environment():
        fields = read_models().fields("CommandJob")
    taken = {name for name, field in fields.items() if "update" in field.when}
    # By Azure's own refusal of a change ("Only description, displayName, tags, and isArchived").
    assert {*MUTABLE} - taken == {"displayName"}
    # What makes it another kind of job, and what no job of ours has.
    assert taken - {*MUTABLE} == {"jobType", "services", "notificationSetting"}
