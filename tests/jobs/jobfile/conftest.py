"""A job file beside a script, read as a test writes it."""

import pytest

from jobs.contracts.errors import LaunchError
from jobs.jobfile.read import load_job

HEAD = "name: a\nimage: b\n"
RUNS = HEAD + "script: train.py\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return tmp_path


def load(folder, text, *overrides, **options):
    (folder / "job.yaml").write_text(text)
    return load_job("job.yaml", overrides, options)


def mistake(folder, text, *overrides, **options):
    with pytest.raises(LaunchError) as caught:
        load(folder, text, *overrides, **options)
    return caught.value.message, caught.value.hint
