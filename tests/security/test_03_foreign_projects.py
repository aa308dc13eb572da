"""A project that lies around is not trusted, and nothing in one that nobody named is started.

Attackers: another user of the machine, who lays a Pulumi.yaml in a folder above (/tmp), and who wrote
a repository or archive that a user unpacked, and who then owns its files. Both had their
`.venv/bin/pulumi` run by `launch ls`, and by a TAB.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from jobs.cli import main
from jobs.contracts.errors import LaunchError, Refused
from jobs.engines.local.engine import image_runtime
from jobs.host import trust
from jobs.host.owners import owner_of, why_foreign
from jobs.host.project import project_root, sources_folder
from jobs.images.runtimes import runtime_root
from tests.fakes.pulumi_stack import ENVIRONMENT
from tests.shells import press_tab

NOBODY = 65534
PULUMI = '#!/bin/sh\ntouch "{ran}"\ncat "{root}/output.json"\n'

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


class Laid:
    """A project with a program that plays Pulumi; `ran` is there once it was started."""

    def __init__(self, root: Path, ran: Path) -> None:
        self.root, self.ran = root, ran
        (root / ".venv" / "bin").mkdir(parents=True)
        state = root / ".trainyard/state/.pulumi/stacks/trainyard/local.json"
        state.parent.mkdir(parents=True)
        state.write_text("{}")
        (root / "Pulumi.yaml").write_text("name: trainyard\nruntime: python\n")
        (root / "Pulumi.local.yaml").touch()
        (root / "output.json").write_text(json.dumps(ENVIRONMENT))
        pulumi = root / ".venv" / "bin" / "pulumi"
        pulumi.write_text(PULUMI.format(root=root, ran=ran))
        pulumi.chmod(0o755)
        (root / "deep" / "er").mkdir(parents=True)

    def give_to(self, uid: int) -> None:
        for path in (self.root, *self.root.rglob("*")):
            os.chown(path, uid, uid)


@pytest.fixture
def laid(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TRAINYARD_STACK", raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    made = Laid(tmp_path / "lies around", tmp_path / "ran")
    monkeypatch.chdir(made.root / "deep" / "er")
    return made


# --- another user's ---------------------------------------------------------------------------


@as_root
def test_a_project_of_another_user_is_refused_and_nothing_in_it_started(laid, capsys):
    laid.give_to(NOBODY)
    assert main(["env", "show"]) == 3
    said = capsys.readouterr().err
    assert said == (
        f"error: the project in {laid.root} is not trusted: {laid.root} belongs to "
        f"{owner_of(laid.root)}\n\n"
        f"hint: launch env trust '{laid.root}', if you trust every user who can write there; "
        "or work elsewhere\n"
    )
    assert f"uid {NOBODY}" in said
    assert (press_tab("launch env show -s "), laid.ran.exists()) == ("", False)


@as_root
def test_its_user_may_take_a_project_of_another_until_it_changes_hands(laid, capsys):
    laid.give_to(NOBODY)
    assert main(["env", "trust", str(laid.root)]) == 0
    assert main(["env", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stack"] == "local"
    assert laid.ran.exists()
    os.chown(laid.root / "Pulumi.yaml", NOBODY - 1, -1)
    assert main(["env", "show"]) == 3


@as_root
def test_a_link_to_a_file_of_another_is_of_another(laid, tmp_path):
    (tmp_path / "of another").write_text("name: trainyard\n")
    os.chown(tmp_path / "of another", NOBODY, NOBODY)
    (laid.root / "Pulumi.yaml").unlink()
    (laid.root / "Pulumi.yaml").symlink_to(tmp_path / "of another")
    with pytest.raises(Refused, match=f"uid {NOBODY}"):
        project_root()


@as_root
def test_under_sudo_the_callers_projects_are_ours_as_git_has_it(laid, monkeypatch):
    laid.give_to(NOBODY)
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    assert project_root() == laid.root
    monkeypatch.setenv("SUDO_UID", "²")
    with pytest.raises(Refused):
        project_root()
    # What another user's environment says of sudo means nothing.
    monkeypatch.setattr(trust.os, "geteuid", lambda: NOBODY - 1)
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    with pytest.raises(Refused):
        project_root()


@as_root
def test_roots_are_everybodys(laid, monkeypatch):
    monkeypatch.setattr(trust.os, "geteuid", lambda: NOBODY)
    assert project_root() == laid.root


@pytest.mark.parametrize("name", [".", "Pulumi.yaml"])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_what_others_can_write_is_refused(laid, name, mode):
    path = laid.root / name
    path.chmod(mode)
    with pytest.raises(Refused) as refused:
        project_root()
    assert refused.value.message == (
        f"the project in {laid.root} is not trusted: {laid.root / name} can be written by others "
        f"(mode {mode:04o})"
    )


@as_root
def test_a_group_that_is_the_owners_alone_may_write(laid):
    for gid, is_taken in ((0, True), (NOBODY, False)):
        os.chown(laid.root, 0, gid)
        laid.root.chmod(0o775)
        assert (why_foreign(laid.root) is None) is is_taken


def test_a_pipe_in_place_of_the_file_is_not_waited_for(laid):
    (laid.root / "Pulumi.yaml").unlink()
    os.mkfifo(laid.root / "Pulumi.yaml")
    assert project_root() == trust.INSTALLED


# --- a repository that its user cloned ----------------------------------------------------------


def test_nothing_of_a_repository_is_started_until_it_is_named(laid, capsys):
    assert main(["env", "show"]) == 3
    said = capsys.readouterr().err
    assert said == (
        f"error: the project in {laid.root} (of {owner_of(laid.root)}) is not the project of "
        "this `launch`: no program of it is started\n\n"
        f"hint: launch env trust '{laid.root}', if you trust its author; or use its own "
        "`launch`\n"
    )
    assert main(["image", "install", "pytorch"]) == 3
    # Its trainers would be what a job of the catalog runs.
    for verb in ("plan", "run"):
        assert main([verb, "mnist-synthetic", "--env", "no-file"]) == 3
        assert "no program of it is started" in capsys.readouterr().err
    assert not laid.ran.exists()

    assert main(["env", "trust", "../.."]) == 0
    capsys.readouterr()
    assert main(["env", "show", "--json"]) == 0
    assert (json.loads(capsys.readouterr().out)["stack"], laid.ran.exists()) == ("local", True)


@pytest.mark.parametrize(
    "line", ["launch show ", "launch run --cluster ", "launch data pull ", "launch env show -s "]
)
def test_a_tab_starts_nothing_even_in_a_project_that_is_trusted(laid, line):
    trust.trust(laid.root)
    offered = press_tab(line)
    assert (offered.strip(), laid.ran.exists()) == ("local" if line.endswith("-s ") else "", False)


def test_a_tab_knows_what_was_read_before_however_old(laid, capsys):
    trust.trust(laid.root)
    assert main(["env", "show"]) == 0
    laid.ran.unlink()
    state = laid.root / ".trainyard/state/.pulumi/stacks/trainyard/local.json"
    state.write_text('{"changed": 1}')
    assert (press_tab("launch run --cluster ").strip(), laid.ran.exists()) == ("cpu", False)


# --- the list ------------------------------------------------------------------------------------


def test_the_list_is_its_users_alone_and_keeps_what_is_there(laid, tmp_path):
    gone = Laid(tmp_path / "gone", laid.ran).root
    for root in (gone, laid.root):
        file = trust.trust(root)
    assert file == tmp_path / "cache" / "trainyard" / "trusted.json"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)}
    assert modes == {"trainyard": 0o700, "trusted.json": 0o600}
    assert list(json.loads(file.read_text())) == [str(gone), str(laid.root)]
    shutil.rmtree(gone)
    trust.trust(laid.root)
    assert list(json.loads(file.read_text())) == [str(laid.root)]


@pytest.mark.parametrize("text", ["", "[]", "{", "\0", '{"a": 1}'])
def test_a_damaged_list_trusts_nobody(laid, text):
    trust.trust(laid.root).write_text(text)
    assert not trust.is_trusted(laid.root)
    trust.trust(laid.root)
    assert trust.is_trusted(laid.root)


def test_a_list_that_others_can_write_trusts_nobody(laid):
    trust.trust(laid.root).chmod(0o666)
    assert not trust.is_trusted(laid.root)


def test_only_a_project_can_be_trusted(laid, tmp_path, capsys):
    assert main(["env", "trust", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"error: no trainyard project in {tmp_path}\n\n"
        "hint: name the folder that its Pulumi.yaml lies in\n"
    )


# --- one notion of where the project is (review-code 13) -------------------------------------------


def test_image_trainers_and_stack_are_of_the_same_project(laid, monkeypatch):
    shutil.copytree(trust.INSTALLED / "images", laid.root / "images")
    lock = laid.root / "images" / "pytorch" / "requirements.txt"
    lock.write_text(lock.read_text() + "# another\n")
    assert (project_root(), sources_folder()) == (laid.root, laid.root)
    with pytest.raises(LaunchError, match="is not installed"):
        image_runtime("pytorch")
    runtime = runtime_root("pytorch", laid.root)
    for made in (runtime / "bin" / "python", runtime / ".finished"):
        made.parent.mkdir(parents=True, exist_ok=True)
        made.touch()
    assert image_runtime("pytorch") == runtime / "bin" / "python"


def test_another_clone_is_not_told_of_by_the_pulumi_of_this_one(laid, capsys):
    trust.trust(laid.root)
    (laid.root / ".venv" / "bin" / "pulumi").unlink()
    assert main(["env", "show"]) == 1
    assert f"{laid.root}/.venv/bin/pulumi is missing" in capsys.readouterr().err
