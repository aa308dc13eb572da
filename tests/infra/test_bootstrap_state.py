"""The backend of the state: the commands as a whole, and that any beginning comes to the same end."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra import bootstrap_state

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
GROUP = "aaaaaaaa-2222-3333-4444-555555555555"
ME = "bbbbbbbb-2222-3333-4444-555555555555"
ARGUMENTS = ["--name", "yard", "--location", "swedencentral", "--allow-ip", "203.0.113.7"]
NUM_STEPS = 13

# An `az` whose cloud is a folder with a file for each thing: it keeps what made the thing, needs
# the group, refuses to make what Azure makes once only, and kills who called it when told to.
AZ = """#!/bin/sh
verb= name= resource= role= before=
for word in "$@"; do
    case "$before" in
    --name | --account-name | --url) name=$word ;;
    --resource) resource=$word ;;
    --role) role=$word ;;
    esac
    case "$word$options" in -*) options=- ;; *-) ;; *) verb="$verb${verb:+ }$word" ;; esac
    before=$word
done
case "$verb" in
"account show") echo "$FAKE_SUBSCRIPTION"; exit ;;
"ad signed-in-user show") echo "$FAKE_ME"; exit ;;
*" show") kind=${verb% show} thing="$FAKE_CLOUD/$kind create $name"; [ -e "$thing" ] || exit 3; exit ;;
"$FAKE_REFUSED") echo "ERROR: (QuotaExceeded) no more of these" >&2; exit 1 ;;
esac
name=${name##*/}
thing="$FAKE_CLOUD/$verb $name${resource:+ }$resource${role:+ }$role"
case "$verb" in
"group create") [ -e "$FAKE_CLOUD" ] || "$FAKE_MKDIR" "$FAKE_CLOUD" ;;
"keyvault create") [ -e "$thing" ] && { echo "ERROR: Vault already exists" >&2; exit 1; } ;;
esac
[ -e "$FAKE_CLOUD" ] || { echo "ERROR: (ResourceGroupNotFound)" >&2; exit 3; }
printf '%s\\n' "$@" > "$thing"
set -- "$FAKE_CLOUD"/*
[ $# != "$FAKE_DIES_AFTER" ] || kill -9 $PPID
"""


@pytest.fixture
def azure(tmp_path, monkeypatch):
    """A folder with the fake `az` alone on PATH; gives the folder that is its cloud."""
    az = tmp_path / "bin" / "az"
    az.parent.mkdir()
    az.write_text(AZ)
    az.chmod(0o755)
    cloud = tmp_path / "cloud"
    monkeypatch.setenv("FAKE_MKDIR", str(shutil.which("mkdir")))
    monkeypatch.setenv("PATH", str(az.parent))
    monkeypatch.setenv("FAKE_SUBSCRIPTION", SUBSCRIPTION)
    monkeypatch.setenv("FAKE_ME", ME)
    monkeypatch.setenv("FAKE_CLOUD", str(cloud))
    return cloud


def things(cloud: Path) -> dict[str, list[str]]:
    """Each thing in the cloud, with the words that made it."""
    return {thing.name: thing.read_text().splitlines() for thing in cloud.iterdir()}


def test_the_dry_run_is_a_script_that_asks_nobody(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    who = ["--subscription", SUBSCRIPTION, "--group", GROUP]
    assert bootstrap_state.main([*ARGUMENTS, "198.51.100.0/24", *who, "--dry-run"]) == 0
    assert capsys.readouterr().out == Path(__file__).with_suffix(".txt").read_text()


@pytest.mark.parametrize(
    ("location", "sku"),
    [
        ("westeurope", "Standard_GRS"),
        ("italynorth", "Standard_ZRS"),
    ],
)
def test_the_state_has_as_many_copies_as_its_region_can_have(location, sku, capsys):
    who = ["--subscription", SUBSCRIPTION, "--group", GROUP, "--dry-run"]
    assert bootstrap_state.main([*ARGUMENTS, "--location", location, *who]) == 0
    assert f"--location {location} --kind StorageV2 --sku {sku} " in capsys.readouterr().out


def test_what_is_made_is_what_the_dry_run_says(azure, capsys):
    assert bootstrap_state.main([*ARGUMENTS, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert not azure.exists()
    assert bootstrap_state.main(ARGUMENTS) == 0
    told = capsys.readouterr()
    quiet = ["--output", "none", "--only-show-errors"]
    made = [words for words in things(azure).values() if words[-3:] == quiet]
    assert len(made) == NUM_STEPS
    commands = [shlex.join(["az", *words[:-3]]) for words in made]
    assert [command for command in commands if command not in said] == []
    assert told.out == said[said.index("export ") :]
    assert len(told.err.splitlines()) == NUM_STEPS


def test_the_dry_run_as_a_script_stops_at_the_step_that_fails(azure, capsys, monkeypatch):
    """Later steps would lock, and open to people, a storage that is not as it should be."""
    assert bootstrap_state.main([*ARGUMENTS, "--dry-run"]) == 0
    script = capsys.readouterr().out
    monkeypatch.setenv("FAKE_REFUSED", "storage account network-rule add")
    done = subprocess.run(["/bin/sh"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    names = bootstrap_state.name_everything("yard", SUBSCRIPTION)
    made = ["group create yard-state", f"storage account create {names.account}"]
    assert sorted(things(azure)) == made


def test_a_second_run_comes_to_the_same(azure):
    assert bootstrap_state.main(ARGUMENTS) == 0
    first = things(azure)
    assert bootstrap_state.main(ARGUMENTS) == 0
    assert things(azure) == first


@pytest.mark.parametrize("step", range(1, NUM_STEPS))
def test_a_run_that_was_killed_after_any_step_is_ended_by_the_next(azure, tmp_path, step):
    assert bootstrap_state.main(ARGUMENTS) == 0
    whole = things(azure)
    program = [sys.executable, "-m", "infra.bootstrap_state", *ARGUMENTS]
    cloud = tmp_path / "killed"
    environ = {**os.environ, "FAKE_CLOUD": str(cloud), "FAKE_DIES_AFTER": str(step)}
    killed = subprocess.run(program, env=environ, capture_output=True, check=False)
    assert (killed.returncode, len(things(cloud))) == (-signal.SIGKILL, step)
    environ["FAKE_DIES_AFTER"] = "0"
    subprocess.run(program, env=environ, capture_output=True, check=True)
    assert things(cloud) == whole


def test_a_refusal_is_told_and_nothing_after_it_is_tried(azure, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_REFUSED", "keyvault create")
    assert bootstrap_state.main(ARGUMENTS) == 1
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "bootstrap_state: `az keyvault create` failed: ERROR: (QuotaExceeded) no more of these",
        "hint: correct that and start again; finished steps are kept",
    ]
    assert not [thing for thing in things(azure) if thing.startswith(("rest", "role"))]


def test_without_az_it_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert bootstrap_state.main(ARGUMENTS) == 1
    assert capsys.readouterr().err == (
        "bootstrap_state: no `az` on PATH;"
        " hint: install the Azure CLI, or use the Azure Cloud Shell\n"
    )


@pytest.mark.parametrize(
    ("flag", "value", "problem"),
    [
        ("--name", "my-yard", "'my-yard': a letter, then 1 to 10 of a-z and 0-9"),
        ("--name", "trainyardwest", "'trainyardwest': a letter, then 1 to 10 of a-z and 0-9"),
        (
            "--allow-ip",
            "10.1.0.0/16",
            "'10.1.0.0/16': a storage firewall takes public addresses and ranges up to /30",
        ),
        (
            "--allow-ip",
            "203.0.113.6/31",
            "'203.0.113.6/31': a storage firewall takes public addresses and ranges up to /30",
        ),
        (
            "--location",
            "West Europe",
            "'West Europe' is not a region of Azure; hint: westeurope",
        ),
        ("--group", "admins", "'admins' is not an id such as 11111111-2222-3333-4444-555555555555"),
    ],
)
def test_what_azure_would_refuse_is_refused_before(flag, value, problem, capsys):
    given = dict(zip(ARGUMENTS[::2], ARGUMENTS[1::2], strict=True)) | {flag: value}
    with pytest.raises(SystemExit) as stopped:
        bootstrap_state.main([word for pair in given.items() for word in pair])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"argument {flag}: {problem}")
