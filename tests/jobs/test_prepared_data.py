"""`launch data prepare`: what the program says reaches its user once."""

import pytest

from jobs.errors import EnvironmentFailure, LaunchError
from jobs.prepared_data import run_prepare


def test_a_folder_that_cannot_be_made_is_said_with_a_hint(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailure) as caught:
        run_prepare("digits", tmp_path / "file" / "digits", tell=print)
    assert caught.value.message.startswith("`digits` was not prepared: [Errno 20] Not a directory")
    assert caught.value.hint == "mend this and type the same again"


def test_the_programs_own_hint_goes_before_ours(tmp_path, monkeypatch):
    # Stands in front of the real one, as if the group `data` were not installed.
    (tmp_path / "sklearn").mkdir()
    (tmp_path / "sklearn" / "__init__.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(EnvironmentFailure) as caught:
        run_prepare("digits", tmp_path / "digits", tell=print)
    assert caught.value.message == (
        "`digits` was not prepared: scikit-learn is not installed here, and the digits come with it"
    )
    assert caught.value.hint == "uv sync --group data"


def test_an_unknown_dataset_names_the_one_there_is(tmp_path):
    with pytest.raises(LaunchError, match="no dataset `mnist` can be prepared"):
        run_prepare("mnist", tmp_path, tell=print)
