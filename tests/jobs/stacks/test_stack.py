"""Environments are read, cached and refused as documented; repair touches only what is dead.

Pulumi is a shell script here that plays its part; the real one is in tests/integration.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError, Refused
from jobs.contracts.spec import Environment
from jobs.host.environment_file import parse_environment, read_environment, write_environment
from jobs.host.project import project_root
from jobs.host.trust import trust
from jobs.stacks.stack import list_stacks, load_environment, preview, repair

ENVIRONMENT = {
    "schema": 1,
    "stack": "local",
    "engine": "local",
    "location": "local",
    "subscription_id": None,
    "resource_group": None,
    "workspace": {"name": "w", "id": "w", "endpoint": "file:///w"},
    "storage": {
        "account": "trainyard",
        "blob_endpoint": "http://127.0.0.1:10100/trainyard",
        "containers": {"data": "data", "runs": "runs"},
        "folder": "/s",
    },
    "registry": None,
    "key_vault": None,
    "clusters": {
        "cpu": {
            "compute": "cpu-1",
            "size": "local",
            "gpus_per_node": 0,
            "cpus_per_node": 1,
            "processes_per_node": 2,
            "rdma": False,
            "priority": "dedicated",
            "min_nodes": 2,
            "max_nodes": 2,
            "idle_s": 0,
            "price_per_node_hour": 0,
            "currency": None,
        }
    },
    "images": {},
}
# Every start of Pulumi leaves a line in `calls`.
PULUMI = """#!/bin/sh
echo "$@" >> "{root}/calls"
cat "{root}/stderr" >&2
cat "{root}/output"
exit $(cat "{root}/code")
"""


class FakeProject:
    """A project folder with a stand-in for Pulumi and a stack's record."""

    def __init__(self, root):
        self.root = root
        self.state = root / ".trainyard/state/.pulumi/stacks/trainyard/local.json"
        self.locks = root / ".trainyard/state/.pulumi/locks/organization/trainyard/local"
        (root / "Pulumi.yaml").write_text("name: trainyard\nruntime: python\n")
        (root / "Pulumi.local.yaml").touch()
        wrapper = root / ".venv/bin/pulumi"
        for folder in (wrapper.parent, self.state.parent, self.locks):
            folder.mkdir(parents=True)
        wrapper.write_text(PULUMI.format(root=root))
        wrapper.chmod(0o755)
        self.say(ENVIRONMENT)
        self.record()

    def say(self, output=None, *, stderr="", code=0):
        text = output if isinstance(output, str) else json.dumps(output)
        (self.root / "output").write_text(text)
        (self.root / "stderr").write_text(stderr)
        (self.root / "code").write_text(str(code))

    def record(self, *, pending=(), resources=({"urn": "u"},)):
        latest = {"resources": list(resources), "pending_operations": list(pending)}
        self.state.write_text(json.dumps({"version": 3, "checkpoint": {"latest": latest}}))

    def calls(self):
        file = self.root / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def lock(self, pid, *, hostname=None, taken=None, name="a"):
        content = {
            "pid": pid,
            "username": "ada",
            "hostname": hostname or socket.gethostname(),
            "timestamp": (taken or datetime.now(UTC)).isoformat(),
        }
        path = self.locks / f"{name}.json"
        path.write_text(json.dumps(content))
        return path


@pytest.fixture
def project(tmp_path, monkeypatch):
    made = FakeProject(tmp_path / "project")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    trust(made.root)
    monkeypatch.chdir(made.root)
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    return made


@pytest.fixture(autouse=True)
def _make_root(tmp_path):
    (tmp_path / "project").mkdir()


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def error_of(call, kind=LaunchError):
    with pytest.raises(kind) as caught:
        call()
    return caught.value


# --- reading ------------------------------------------------------------------------------


def test_a_stack_is_read_once_and_again_only_when_its_record_changed(project):
    first = load_environment("local")
    assert load_environment("local") == first
    assert len(project.calls()) == 1
    assert project.calls() == ["stack output environment --json -s local --non-interactive"]

    changed = ENVIRONMENT | {"location": "here"}
    project.say(changed)
    os.utime(project.state, ns=(1, 1))
    assert load_environment("local").location == "here"
    assert len(project.calls()) == 2

    assert load_environment("local", refresh=True).location == "here"
    assert len(project.calls()) == 3


def test_a_damaged_or_unwritable_cache_only_costs_a_call(project):
    load_environment("local")
    cache = project.root / ".trainyard/cache"
    (cache / "environment-local.json").write_text("{")
    load_environment("local")
    assert len(project.calls()) == 2
    shutil.rmtree(cache)
    cache.write_text("a file in the way")
    load_environment("local")
    load_environment("local")
    assert len(project.calls()) == 4


def test_without_a_folder_backend_the_cache_lasts_ten_minutes(project, monkeypatch):
    load_environment("dev")
    load_environment("dev")
    assert len(project.calls()) == 1
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 599)
    load_environment("dev")
    assert len(project.calls()) == 1
    monkeypatch.setattr(time, "time", lambda: now + 601)
    load_environment("dev")
    assert len(project.calls()) == 2


def test_another_stack_in_a_folder_backend_follows_its_record(project, monkeypatch, tmp_path):
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/backend")
    assert error_of(lambda: load_environment("dev")).message == "stack `dev` is not up"
    record = tmp_path / "backend/.pulumi/stacks/trainyard/dev.json"
    record.parent.mkdir(parents=True)
    record.touch()
    load_environment("dev")
    load_environment("dev")
    record.write_text("changed")
    load_environment("dev")
    assert len(project.calls()) == 2


def test_a_stack_that_is_not_up_says_what_to_type(project):
    project.state.unlink()
    error = error_of(lambda: load_environment("local"))
    assert error.message == "stack `local` is not up"
    assert error.hint == "uv run pulumi up -s local"
    assert project.calls() == []

    project.record(resources=())
    said = "error: current stack does not have output property 'environment'\n"
    project.say("", stderr=said, code=255)
    assert error_of(lambda: load_environment("local")).message == "stack `local` is not up"


def test_a_failure_of_pulumi_is_told_in_its_own_words(project):
    project.say("", stderr="warning: x\nerror: incorrect passphrase\n", code=255)
    error = error_of(lambda: load_environment("local"), EnvironmentFailure)
    assert error.message == "`pulumi stack output -s local` failed: incorrect passphrase"
    assert error.hint == "`pulumi stack output -s local` in the project's folder says all of it"


@pytest.mark.parametrize("name", ["../../x", "a/b", "a\\b", ".hidden", "", "a\n"])
@pytest.mark.parametrize("field", ["location", "workspace"])
def test_a_name_that_leads_elsewhere_is_no_environment(field, name):
    value = {**ENVIRONMENT["workspace"], "name": name} if field == "workspace" else name
    text = json.dumps({**ENVIRONMENT, field: value}).encode()
    error = error_of(lambda: parse_environment(text, "x.json"))
    assert error.message.startswith("the environment of x.json is wrong: Expected `str` matching")


NO_LOGIN = "PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions"
NO_AZURE = """read ".pulumi/meta.yaml": (code=Unknown): DefaultAzureCredential: failed to acquire a token.
Attempted credentials:
\tTo troubleshoot, visit https://aka.ms/azsdk/go/identity/troubleshoot#managed-id"""


@pytest.mark.parametrize(
    ("said", "reason", "hint"),
    [
        (
            NO_LOGIN,
            "Pulumi is not logged in",
            "pulumi login, or export PULUMI_BACKEND_URL=... where the state is in a bucket",
        ),
        (NO_AZURE, NO_AZURE.partition("\n")[0], "az login, then the same again"),
    ],
    ids=["no login", "no login to Azure"],
)
def test_a_missing_login_is_told_with_what_logs_in(project, said, reason, hint):
    project.say("", stderr=f"error: {said}\n", code=255)
    for asked, command in (
        (lambda: load_environment("local"), "pulumi stack output -s local"),
        (lambda: preview("local"), "pulumi preview -s local"),
    ):
        error = error_of(asked, EnvironmentFailure)
        assert (error.message, error.hint) == (f"`{command}` failed: {reason}", hint)
    assert error_of(lambda: repair_pending(project), EnvironmentFailure).hint == hint


def repair_pending(project):
    """Mend a stack whose last `up` was cut off, which asks Pulumi."""
    project.record(pending=[{"type": "creating", "resource": {"urn": "u::x"}}])
    return repair("local")


def test_a_missing_pulumi_says_what_to_type(project, monkeypatch, tmp_path):
    (project.root / ".venv/bin/pulumi").unlink()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    error = error_of(lambda: load_environment("local"), EnvironmentFailure)
    assert "pulumi is missing" in error.message
    assert error.hint == "`make setup` installs it"


def test_outside_any_project_the_installed_clone_is_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.yaml").write_text("name: another\n")
    assert (project_root() / "jobs" / "host" / "project.py").exists()


def test_inside_a_project_its_root_is_found_from_below(project, monkeypatch):
    below = project.root / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert project_root() == project.root


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the environment of x is damaged: Input data was truncated"),
        ("[]", "the environment of x is damaged: Expected `object`, got `array`"),
        ("{}", "the environment of x is damaged: Object missing required field `schema`"),
        (
            json.dumps(ENVIRONMENT | {"schema": 2}),
            "the environment of x has schema 2, this launch reads schema 1",
        ),
        (
            json.dumps(ENVIRONMENT | {"stack": 3}),
            "the environment of x is wrong: Expected `str`, got `int` - at `$.stack`",
        ),
        (
            json.dumps(ENVIRONMENT | {"clusters": {"cpu": {"compute": "a"}}}),
            "the environment of x is wrong: Object missing required field `size` "
            "- at `$.clusters[...]`",
        ),
        (
            json.dumps(ENVIRONMENT | {"key": "secret"}),
            "the environment of x is wrong: Object contains unknown field `key`",
        ),
    ],
)
def test_what_is_wrong_with_an_environment_is_said_with_its_place(text, message):
    error = error_of(lambda: parse_environment(text.encode(), "x"))
    assert error.message == message
    assert error.hint


def test_a_newer_schema_asks_for_a_newer_launch():
    newer, older = (json.dumps(ENVIRONMENT | {"schema": n}).encode() for n in (2, 0))
    assert "update launch" in str(error_of(lambda: parse_environment(newer, "x")).hint)
    assert "pulumi up" in str(error_of(lambda: parse_environment(older, "x")).hint)


def test_a_file_stands_in_for_the_stack_and_needs_no_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "environment.json"
    environment = parse_environment(json.dumps(ENVIRONMENT).encode(), "x")
    write_environment(environment, file)
    assert load_environment("whatever", file) == read_environment(file) == environment
    assert isinstance(environment, Environment)
    assert "No such file" in error_of(lambda: read_environment(tmp_path / "no")).message
    assert (
        "No such file"
        in error_of(lambda: write_environment(environment, tmp_path / "no" / "file")).message
    )


def test_stacks_are_listed_with_what_is_known_of_them(project):
    (project.root / "Pulumi.dev.yaml").touch()
    assert list_stacks() == [("dev", None), ("local", True)]
    project.record(resources=())
    assert list_stacks() == [("dev", None), ("local", False)]


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

# --- previewing ---------------------------------------------------------------------------


def test_a_preview_is_handed_on_whether_it_failed_or_not(project):
    for code in (0, 1):
        project.say({"steps": []}, stderr="warning: x\n", code=code)
        assert json.loads(preview("local")) == {"steps": []}
    assert project.calls()[0] == "preview --json --show-sames -s local --non-interactive"


def test_a_preview_of_no_stack_says_what_to_type(project):
    project.say("", stderr="error: no stack named 'x' found\n", code=6)
    error = error_of(lambda: preview("local"))
    assert (error.message, error.exit_code) == ("stack `local` is not up", 2)
    error = error_of(lambda: preview("loca"))
    assert error.message.startswith("there is no stack `loca`")
    assert error.hint == "did you mean `local`?"
    project.say("", stderr="error: incorrect passphrase\n", code=255)
    error = error_of(lambda: preview("local"), EnvironmentFailure)
    assert error.message == "`pulumi preview -s local` failed: incorrect passphrase"


# --- repair -------------------------------------------------------------------------------


def test_a_sound_stack_needs_no_repair_and_starts_no_pulumi(project):
    assert repair("local") == []
    assert project.calls() == []


def test_a_lock_of_a_dead_process_of_this_host_is_removed(project):
    pid = dead_pid()
    lock = project.lock(pid, taken=datetime.now(UTC) - timedelta(seconds=90))
    assert repair("local") == [f"removed the lock of pid {pid}, dead since it took it 90 s ago"]
    assert not lock.exists()
    assert repair("local") == []


def test_a_lock_whose_pid_was_given_to_a_younger_process_is_removed(project):
    lock = project.lock(os.getpid(), taken=datetime.now(UTC) - timedelta(days=2))
    assert len(repair("local")) == 1
    assert not lock.exists()


def test_a_lock_of_a_living_process_is_refused_by_name_and_kept(project):
    lock = project.lock(os.getpid())
    error = error_of(lambda: repair("local"), Refused)
    assert error.exit_code == 3
    assert f"locked by ada@{socket.gethostname()}, pid {os.getpid()}, since 0 s" in error.message
    assert "that process lives" in error.message
    assert lock.exists()


def test_a_lock_of_another_host_is_refused_and_nothing_else_is_touched(project):
    dead = project.lock(dead_pid(), name="a")
    other = project.lock(
        4711, hostname="elsewhere", taken=datetime.now(UTC) - timedelta(hours=5), name="b"
    )
    error = error_of(lambda: repair("local"), Refused)
    assert "ada@elsewhere, pid 4711, since 5 h: that is another host" in error.message
    assert dead.exists()
    assert other.exists()


def test_a_lock_that_does_not_say_whose_it_is_is_refused(project):
    (project.locks / "a.json").write_text("{")
    assert "does not say whose it is" in error_of(lambda: repair("local"), Refused).message


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
    assert error.hint == ("`pulumi stack export -s local` in the project's folder says all of it")


def test_a_damaged_record_names_its_backup(project):
    project.state.write_text("{")
    error = error_of(lambda: repair("local"), EnvironmentFailure)
    assert str(project.state) in error.message
    assert f"{project.state}.bak" in str(error.hint)


def test_a_create_that_was_cut_off_is_looked_at_as_if_it_were_done(project):
    project.say({"version": 3, "deployment": {"pending_operations": [CUT_OFF]}})
    (project.root / ".venv/bin/pulumi").write_text(IMPORTING.format(root=project.root))

    assert repair("prod") == ["taken over: cloud-group, whose creation had been cut off"]
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


def test_a_stack_in_no_folder_needs_no_repair_where_nothing_was_cut_off(project):
    project.say({"version": 3, "deployment": {"resources": []}})
    assert repair("prod") == []


def test_a_note_that_was_cut_off_and_hides_the_record_is_removed(project):
    torn, whole = (project.state.with_name(f"local.json{end}.attrs") for end in (".bak", ""))
    torn.touch()
    whole.write_text('{"user.content_type": "text/plain"}')
    assert repair("local") == ["removed local.json.bak.attrs, cut off while it was written"]
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
                assert done == ["ended what a killed pulumi had left running (1 processes)"]
                assert process.wait(timeout=10) == expected
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.communicate()
