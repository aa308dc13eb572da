"""A relative XDG_CACHE_HOME is ignored, as its specification says; one that others can change refused.

Attacker: who wrote the folder that a user is in. Runtimes and libraries that ranks preload were
looked for below it, and run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.datasets.scan_cache import cache_folder
from jobs.host.cache import cache_root
from jobs.images.package_index import lend
from jobs.runs.cloud_folder import state_root

ASKED = ("relative", "./here", "~/.cache", "")


@pytest.mark.parametrize("given", ASKED)
def test_a_relative_cache_is_ignored_by_all(tmp_path, monkeypatch, given):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.chdir(tmp_path)
    found = [cache_root(os.environ), cache_folder().parent]
    assert found == [home / ".cache" / "trainyard"] * 2


def test_package_indexes_are_not_read_from_the_working_folder(tmp_path, monkeypatch):
    for tool, text in (("pip", "[global]\nindex-url = https://evil.example\n"), ("uv", "")):
        (tmp_path / "relative" / tool).mkdir(parents=True)
        (tmp_path / "relative" / tool / f"{tool}.conf").write_text(text)
    (tmp_path / "relative" / "uv" / "uv.toml").write_text('index-url = "https://evil.example"')
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lent").mkdir()
    lent = lend(tmp_path / "lent", {"XDG_CONFIG_HOME": "relative"}, tmp_path / "home")
    assert "evil" not in "".join(path.read_text() for path in lent.values())


@pytest.mark.parametrize("home", ["relative", "."])
def test_a_relative_home_has_no_cache(tmp_path, monkeypatch, home):
    monkeypatch.setenv("HOME", home)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EnvironmentFailure) as failure:
        cache_root({"XDG_CACHE_HOME": "relative"})
    assert failure.value.hint == "set XDG_CACHE_HOME to an absolute folder"


def test_a_user_without_a_home_is_told(tmp_path):
    program = "import os; from jobs.host.cache import cache_root; cache_root(os.environ)"
    if os.geteuid() == 0:  # a uid that has no name has no home either
        program = f"import os; os.setuid(54321); {program}"
    else:
        pytest.skip("only root can become a user without a name")
    done = subprocess.run(
        [sys.executable, "-c", f"import jobs.host.cache, pwd; {program}"],
        env={"PATH": os.defpath},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "there is no home folder for the cache" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give folders to another user")
@pytest.mark.parametrize("ask", [cache_root, partial(state_root, platform="linux", home=Path("/"))])
def test_a_cache_in_a_folder_of_others_is_refused(tmp_path, monkeypatch, ask):
    monkeypatch.delenv("SUDO_UID", raising=False)
    variables = dict.fromkeys(("XDG_CACHE_HOME", "XDG_STATE_HOME"), str(tmp_path / "given"))
    given, ours = tmp_path / "given", tmp_path / "given" / "trainyard"

    def is_refused() -> bool:
        try:
            return ask(variables) != ours
        except EnvironmentFailure as failure:
            return "is not trusted: " in failure.message and failure.hint is not None

    assert not is_refused()  # none is there yet
    tmp_path.chmod(0o777)
    assert is_refused()
    tmp_path.chmod(0o1777)  # as /tmp
    assert not is_refused()
    given.mkdir(mode=0o700)
    assert not is_refused()
    os.chown(given, 65534, 65534)
    assert is_refused()
    os.chown(given, 0, 0)
    given.chmod(0o1777)
    ours.mkdir()
    assert not is_refused()
    os.chown(ours, 65534, 65534)
    assert is_refused()
