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
    seen = call(wrapper, "preview", "-s", "prod", PULUMI_BACKEND_URL="azblob://state")
    assert seen == {
        "PULUMI_BACKEND_URL": "azblob://state",
        "PULUMI_CONFIG_PASSPHRASE": "unset",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "unset",
        "PULUMI_HOME": f"{project.root}/.trainyard/pulumi-home",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PATH": f"{project.root}/.venv/bin:{tmp_path}/real pulumi:{os.defpath}",
        "arguments": "3 preview -s prod",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "-s", "local"),
        ("up", "--stack", "local", "--yes"),
        ("--stack=local", "up"),
        ("preview",),
        ("config", "rm", "dev"),
        ("config", "set", "user", "login"),
        ("stack", "init", "local"),
        ("stack", "select", "--create", "local"),
        ("up", "-slocal"),
        ("up", "-s=local"),
        ("-ys", "local", "up"),
        ("up", "-fyslocal"),
        ("up", "-m", "use -s dev", "-s", "local"),
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
    assert call(wrapper, "preview", **environ)["PULUMI_BACKEND_URL"] == "azblob://state"


@pytest.mark.parametrize(
    "arguments",
    [
        ("preview", "-s", "dev"),
        ("preview", "--stack=prod"),
        ("preview", "--stack", "org/trainyard/test"),
        ("login", "azblob://state"),
        ("logout",),
        ("--color=never", "login", "azblob://state"),
        ("stack", "init", "dev"),
        ("stack", "select", "--create", "dev"),
        ("stack", "rm", "dev", "--yes"),
        ("stack", "init", "dev", "--secrets-provider", "azurekeyvault://vault/keys/state"),
        ("preview", "-sdev"),
        ("-ys=dev", "preview"),
        ("destroy", "-fys", "dev"),
        ("-jysdev", "preview"),
    ],
)
def test_other_stacks_and_logins_keep_what_the_caller_has(wrapper, arguments):
    seen = call(wrapper, *arguments)
    assert (seen["PULUMI_BACKEND_URL"], seen["PULUMI_CONFIG_PASSPHRASE"]) == ("unset", "unset")
    assert call(wrapper, *arguments, PULUMI_STACK="dev")["PULUMI_BACKEND_URL"] == "unset"


@pytest.fixture
def gate(project):
    """A `python` in the clone that notes what it is asked, and answers 3."""
    asked = project.root / "asked"
    python = project.venv / "bin" / "python"
    python.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{asked}"\necho why\nexit 3\n')
    python.chmod(0o755)
    return asked


@pytest.mark.parametrize(
    ("arguments", "environ", "stack"),
    [
        (("up", "-s", "dev"), {}, "dev"),
        (("update", "--stack=org/trainyard/prod"), {}, "org/trainyard/prod"),
        (("-C", "elsewhere", "watch", "-sprod"), {}, "prod"),
        (("up", "-fys", "dev-big"), {}, "dev-big"),
        (("up", "-s", "local", "-s", "prod"), {}, "prod"),
        (("up",), {"PULUMI_STACK": "prod"}, "prod"),
        (("up",), {"PULUMI_STACK": "local", "PULUMI_OPTION_STACK": "prod"}, "prod"),
        (("up",), {"PULUMI_BACKEND_URL": "azblob://state"}, "?"),
        (("up", "--yes"), {}, ""),
    ],
)
def test_an_up_that_may_be_a_cloud_stacks_starts_when_the_gate_lets_it(
    wrapper, project, gate, arguments, environ, stack
):
    done = subprocess.run(
        [wrapper, *arguments],
        env={"PATH": os.defpath, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "why\n")
    assert gate.read_text().splitlines() == [
        *("-P", "-m", "tools.gate", str(project.root), stack),
        *arguments,
    ]


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (("up", "-s", "local", "--yes"), {}),
        (("up",), {"PULUMI_STACK": "local"}),
        (("preview", "-s", "prod"), {}),
        (("destroy", "-s", "prod"), {}),
        (("stack", "output", "-s", "prod"), {}),
    ],
)
def test_nothing_is_asked_where_no_cloud_stack_is_made(wrapper, gate, arguments, environ):
    """Not even a process is started: `up -s local` takes as long as it did."""
    call(wrapper, *arguments, **environ)
    assert not gate.exists()


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
