"""A job's own packages on this machine: what the plan says of an index that `setup` does not see."""

from __future__ import annotations

import pytest

from jobs.engines.local.layers import note_on_index
from tests.fakes.gangs import Gangs, make_spec

INDEX = {"PIP_INDEX_URL": "https://user:password@host/simple", "UV_INDEX": "", "PATH": "/bin"}
NOTE = (
    "`setup` installs without `PIP_INDEX_URL`, which this shell has; "
    "`secrets: {PIP_INDEX_URL: pip-index-url}` hands it on, to the ranks, too"
)


@pytest.mark.parametrize(
    ("setup", "changes", "note"),
    [
        (("make", "pip install x"), {}, NOTE),
        (("uv pip install x",), {}, NOTE),
        (("python -m pip3 install x",), {"env": {"LEVEL": "1"}}, NOTE),
        (("make -C pipeline",), {}, None),
        ((), {"requirements": "requirements.txt"}, None),
        (("pip install x",), {"secrets": {"PIP_INDEX_URL": "index"}}, None),
        (("pip install x",), {"env": {"PIP_EXTRA_INDEX_URL": "https://host"}}, None),
    ],
)
def test_plan_names_the_index_that_setup_does_not_see(setup, changes, note):
    assert note_on_index(make_spec(["true"], setup=setup, **changes), INDEX) == note


def test_setup_without_an_index_of_the_shell_has_no_note(tmp_path, monkeypatch):
    spec = make_spec(["true"], setup=("pip install x",))
    assert note_on_index(spec, {"PATH": "/bin"}) is None
    for name, value in INDEX.items():
        monkeypatch.setenv(name, value)
    assert NOTE in Gangs(tmp_path).engine.plan(spec).notes
