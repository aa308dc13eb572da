"""Repair touches only what is dead, and settles operations that were cut off.

Pulumi is a shell script here that plays its part; the real one is in tests/integration.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from jobs.contracts.errors import EnvironmentFailure, Refused
from jobs.stacks.repair import repair
from tests.busy import HANG_S
from tests.fakes.pulumi_stack import error_of

# A Pulumi that exports what was imported.
IMPORTING = """#!/bin/sh
echo "$1 $2" >> "{root}/calls"
case "$2" in
export) cat "{root}/output" ;;
import) cp "$6" "{root}/output" ;;
esac
"""
CUT_OFF = {
    "type": "creating",
    "resource": {
        "urn": "urn:pulumi:dev::trainyard::azure-native:resources:ResourceGroup::cloud-group",
        "type": "azure-native:resources:ResourceGroup",
        "inputs": {"resourceGroupName": "g", "subscriptionId": "s", "tags": {"stack": "dev"}},
    },
}


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_sound_stack_needs_no_repair_and_starts_no_pulumi(project):
    assert repair("local") == []
    assert project.calls() == []


def test_a_lock_of_a_dead_process_of_this_host_is_removed(project):
    pid = dead_pid()
    lock = project.lock(pid, taken=datetime.now(UTC) - timedelta(seconds=90))
    assert repair("local") == [
        f"removed the lock of pid {pid}, which ended after it took it 1 min 30 s ago"
    ]
    assert not lock.exists()
    assert repair("local") == []


def test_a_lock_whose_pid_was_given_to_a_younger_process_is_removed(project):
    lock = project.lock(os.getpid(), taken=datetime.now(UTC) - timedelta(days=2))
    assert len(repair("local")) == 1
    assert not lock.exists()


def test_a_lock_of_a_living_pulumi_is_kept_though_the_clock_was_set_meanwhile(project, tmp_path):
    """Its start is counted from the clock of now, the lock's time was that of before."""
    cli = tmp_path / "pulumi"
    cli.symlink_to("/bin/sh")
    command = [cli, "-c", "echo ready; read answer"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        lock = project.lock(process.pid, taken=datetime.now(UTC) - timedelta(hours=1))
        assert "the process is alive" in error_of(lambda: repair("local"), Refused).message
        assert lock.exists()
    finally:
        process.communicate()
    assert len(repair("local")) == 1


def test_a_lock_of_a_living_process_is_refused_by_name_and_kept(project):
    lock = project.lock(os.getpid())
    error = error_of(lambda: repair("local"), Refused)
    assert error.exit_code == 3
    assert f"locked by ada@{socket.gethostname()}, pid {os.getpid()}, for 0" in error.message
    assert "the process is alive" in error.message
    assert lock.exists()


def test_a_lock_of_another_host_is_refused_and_nothing_else_is_touched(project):
    dead = project.lock(dead_pid(), name="a")
    other = project.lock(
        4711, hostname="elsewhere", taken=datetime.now(UTC) - timedelta(hours=5), name="b"
    )
    error = error_of(lambda: repair("local"), Refused)
    assert "ada@elsewhere, pid 4711, for 5 h: it is another host" in error.message
    assert dead.exists()
    assert other.exists()


def test_a_lock_that_does_not_say_whose_it_is_is_refused(project):
    (project.locks / "a.json").write_text("{")
    assert "names no owner" in error_of(lambda: repair("local"), Refused).message


def test_operations_that_were_cut_off_are_cleared_by_a_refresh(project):
    urn = "urn:pulumi:local::trainyard::pulumi-python:dynamic/local:Azurite::local-storage"
    pending = [{"type": "creating", "resource": {"urn": urn}}]
    project.record(pending=pending)
    project.say({"version": 3, "deployment": {"pending_operations": pending}})
    assert repair("local") == ["cleared: creating local-storage"]
    assert project.calls() == [
        "stack export -s local --non-interactive",
        "refresh --yes --skip-preview --clear-pending-creates -s local --non-interactive",
        "stack export -s local --non-interactive",
    ]


def test_a_refresh_that_fails_is_told_whole(project):
    project.record(pending=[{"type": "creating", "resource": {"urn": "u::x"}}])
    project.say("Refreshing\n", stderr="error: no\n", code=1)
    error = error_of(lambda: repair("local"), EnvironmentFailure)
    assert error.message.endswith("failed:\nRefreshing\nerror: no")
    assert error.hint == ("`pulumi stack export -s local` in the project's folder prints all of it")


def test_a_damaged_record_names_its_backup(project):
    project.state.write_text("{")
    error = error_of(lambda: repair("local"), EnvironmentFailure)
    assert str(project.state) in error.message
    assert f"{project.state}.bak" in str(error.hint)


def test_a_create_that_was_cut_off_is_looked_at_as_if_it_were_done(project):
    project.say({"version": 3, "deployment": {"pending_operations": [CUT_OFF]}})
    (project.root / ".venv/bin/pulumi").write_text(IMPORTING.format(root=project.root))

    assert repair("prod") == ["taken over: cloud-group, whose creation was interrupted"]
    assert project.calls() == [
        "stack export",  # what is unsettled?
        "stack export",
        "stack import",
        "refresh --yes",
        "stack export",
        "stack import",
    ]
    group = CUT_OFF["resource"]
    inputs = {name: value for name, value in group["inputs"].items() if name != "tags"}
    done = {**group, "id": "/subscriptions/s/resourceGroups/g", "inputs": inputs, "outputs": {}}
    assert json.loads((project.root / "output").read_text())["deployment"] == {
        "resources": [done],
        "pending_operations": [],
    }


def test_what_a_killed_repair_has_taken_over_is_looked_at_by_the_next(project):
    taken_over = {**CUT_OFF["resource"], "id": "/subscriptions/s/resourceGroups/g"}
    project.record(resources=[taken_over])
    project.say({"version": 3, "deployment": {"resources": []}})  # it was not there
    assert repair("local") == ["cleared: creating cloud-group"]


def test_a_stack_in_no_folder_needs_no_repair_where_nothing_was_cut_off(project, capsys):
    project.say({"version": 3, "deployment": {"resources": []}})
    assert repair("prod") == []
    assert capsys.readouterr().err == (
        "the locks of this backend are Pulumi's: `uv run pulumi cancel -s prod` removes one whose "
        "`pulumi` was killed\n"
    )
    assert repair("local") == []
    assert capsys.readouterr().err == ""


def test_a_note_that_was_cut_off_and_hides_the_record_is_removed(project):
    torn, whole = (project.state.with_name(f"local.json{end}.attrs") for end in (".bak", ""))
    torn.touch()
    whole.write_text('{"user.content_type": "text/plain"}')
    assert repair("local") == ["removed local.json.bak.attrs, left by an interrupted write"]
    assert (torn.exists(), whole.exists()) == (False, True)


def test_a_lock_that_pulumi_meets_itself_is_a_refusal(project):
    said = "error: the stack is currently locked by 1 lock(s). Either wait..., ada@elsewhere"
    project.say("", stderr=said, code=255)
    error = error_of(lambda: repair("prod"), Refused)
    assert "ada@elsewhere" in error.message
    assert "pulumi cancel" in str(error.hint)


def test_a_stack_that_never_was_is_not_repaired(project):
    project.state.unlink()
    assert error_of(lambda: repair("local")).message == "stack `local` is not up"


def test_plugins_of_a_dead_pulumi_are_ended_and_those_of_a_living_one_are_not(project, tmp_path):
    home = project.root / ".trainyard/pulumi-home"
    plugin = tmp_path / "pulumi-language-python"
    plugin.write_text("#!/bin/sh\necho ready; read answer\n")
    cli = tmp_path / "pulumi"
    cli.symlink_to("/bin/sh")
    script = tmp_path / "up"
    script.write_text(f"sh {plugin} 127.0.0.1:1; :")
    for folder, command, expected in (
        (home, ["sh", str(plugin), "127.0.0.1:1"], -9),
        (home, [str(cli), str(script)], None),
        (tmp_path, ["sh", str(plugin), "127.0.0.1:1"], None),
    ):
        environment = {**os.environ, "PULUMI_HOME": str(folder)}
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        done = repair("local")
        try:
            if expected is None:
                assert done == []
                assert process.poll() is None
            else:
                assert done == ["ended processes that a killed pulumi left running (1 processes)"]
                assert process.wait(timeout=HANG_S) == expected
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.communicate()
