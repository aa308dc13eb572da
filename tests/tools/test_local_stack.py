"""The wrapper `.venv/bin/pulumi`: what it hands to the real program, per command line."""

import os
import subprocess

import pytest

from tools.local_stack import write_wrapper
from tools.project import Project

SHOWN = (
    "PULUMI_BACKEND_URL",
    "PULUMI_CONFIG_PASSPHRASE",
    "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION",
    "PULUMI_HOME",
    "PULUMI_SKIP_UPDATE_CHECK",
)


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "a clone's folder"  # a space and a quote: both must survive the shell
    (root / ".venv" / "bin").mkdir(parents=True)
    return Project(root=root, cache=tmp_path / "cache")


@pytest.fixture
def wrapper(project, tmp_path):
    fake = tmp_path / "real pulumi"
    fake.mkdir()
    shown = "".join(f'echo "{name}=${{{name}-unset}}"\n' for name in SHOWN)
    (fake / "pulumi").write_text(f'#!/bin/sh\n{shown}echo "PATH=$PATH"\necho "$# $*"\n')
    (fake / "pulumi").chmod(0o755)
    return write_wrapper(project, fake)


def call(wrapper, *arguments, **environ):
    clean = {"PATH": os.defpath, **environ}
    answer = subprocess.run(
        [wrapper, *arguments], env=clean, capture_output=True, text=True, check=True
    )
    *lines, last = answer.stdout.splitlines()
    return {**dict(line.split("=", 1) for line in lines), "arguments": last}


def test_every_call_gets_this_clones_home_and_its_python_first(wrapper, project, tmp_path):
    seen = call(wrapper, "up", "-s", "prod", PULUMI_BACKEND_URL="azblob://state")
    assert seen == {
        "PULUMI_BACKEND_URL": "azblob://state",
        "PULUMI_CONFIG_PASSPHRASE": "unset",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "unset",
        "PULUMI_HOME": f"{project.root}/.trainyard/pulumi-home",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PATH": f"{project.root}/.venv/bin:{tmp_path}/real pulumi:{os.defpath}",
        "arguments": "3 up -s prod",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "-s", "local"),
        ("up", "--stack", "local", "--yes"),
        ("--stack=local", "up"),
        ("up",),
        ("config", "rm", "dev"),
        ("config", "set", "user", "login"),
        ("stack", "init", "local"),
        ("stack", "select", "--create", "local"),
    ],
)
def test_the_local_stack_gets_a_file_backend_and_an_empty_passphrase(wrapper, project, arguments):
    seen = call(wrapper, *arguments)
    state = project.root / ".trainyard" / "state"
    assert seen["PULUMI_BACKEND_URL"] == f"file://{state}"
    assert seen["PULUMI_CONFIG_PASSPHRASE"] == ""
    assert seen["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] == "true"
    assert state.is_dir()


def test_the_local_stack_named_goes_before_a_backend_in_the_environment(wrapper, project):
    environ = {"PULUMI_BACKEND_URL": "azblob://state", "PULUMI_CONFIG_PASSPHRASE": "mine"}
    local = f"file://{project.root}/.trainyard/state"
    seen = call(wrapper, "up", "-s", "local", **environ)
    assert (seen["PULUMI_BACKEND_URL"], seen["PULUMI_CONFIG_PASSPHRASE"]) == (local, "mine")
    assert call(wrapper, "up", PULUMI_STACK="local", **environ)["PULUMI_BACKEND_URL"] == local
    # Without a name, the caller's backend decides.
    assert call(wrapper, "up", **environ)["PULUMI_BACKEND_URL"] == "azblob://state"


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "-s", "dev"),
        ("up", "--stack=prod"),
        ("preview", "--stack", "org/trainyard/test"),
        ("login", "azblob://state"),
        ("logout",),
        ("--color=never", "login", "azblob://state"),
        ("stack", "init", "dev"),
        ("stack", "select", "--create", "dev"),
        ("stack", "rm", "dev", "--yes"),
        ("stack", "init", "dev", "--secrets-provider", "azurekeyvault://vault/keys/state"),
    ],
)
def test_other_stacks_and_logins_keep_what_the_caller_has(wrapper, arguments):
    seen = call(wrapper, *arguments)
    assert (seen["PULUMI_BACKEND_URL"], seen["PULUMI_CONFIG_PASSPHRASE"]) == ("unset", "unset")
    assert call(wrapper, *arguments, PULUMI_STACK="dev")["PULUMI_BACKEND_URL"] == "unset"


def test_arguments_arrive_unchanged(wrapper):
    assert (
        call(wrapper, "config", "set", "a b", "$HOME *")["arguments"] == "4 config set a b $HOME *"
    )


def test_writing_it_twice_leaves_the_file_alone(wrapper, project, tmp_path):
    before = wrapper.stat().st_mtime_ns
    write_wrapper(project, tmp_path / "real pulumi")
    assert wrapper.stat().st_mtime_ns == before
    write_wrapper(project, tmp_path / "another")
    assert f"exec '{tmp_path}/another/pulumi'" in wrapper.read_text() or (
        f"exec {tmp_path}/another/pulumi" in wrapper.read_text()
    )
