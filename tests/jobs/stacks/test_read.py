"""Environments are read, cached and refused as documented.

Pulumi is a shell script here that plays its part; the real one is in tests/integration.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time

import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import Environment
from jobs.host.environment_file import parse_environment, read_environment, write_environment
from jobs.host.project import project_root
from jobs.stacks.preview import preview
from jobs.stacks.read import list_stacks, load_environment
from jobs.stacks.repair import repair
from tests.fakes.pulumi_stack import ENVIRONMENT, error_of


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
    (project.root / "Pulumi.dev.yaml").touch()
    error = error_of(lambda: load_environment("dev"))
    assert (error.message, error.hint) == (
        "stack `dev` was never made: Pulumi.dev.yaml has its settings, no more",
        "uv run pulumi stack init dev, then pulumi up -s dev (docs/azure.md)",
    )
    assert error_of(lambda: load_environment("dve")).hint == "did you mean `dev`?"
    record = tmp_path / "backend/.pulumi/stacks/trainyard/dev.json"
    record.parent.mkdir(parents=True)
    record.touch()
    load_environment("dev")
    load_environment("dev")
    record.write_text("changed")
    load_environment("dev")
    assert len(project.calls()) == 2


def test_another_backend_answers_for_itself_at_once(project, monkeypatch):
    """The old team's environment would submit to the old team's workspace."""

    def log_in(url):
        home = project.root / ".trainyard/pulumi-home"
        home.mkdir(exist_ok=True)
        (home / "credentials.json").write_text(json.dumps({"current": url, "accessTokens": {}}))

    def read_of(location):
        project.say(ENVIRONMENT | {"location": location})
        return load_environment("dev").location

    for name in ("PULUMI_CREDENTIALS_PATH", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    assert read_of("nobody") == "nobody"
    log_in("https://api.pulumi.com")
    assert read_of("cloud") == "cloud"
    log_in("https://pulumi.example.com")
    assert read_of("own") == "own"
    monkeypatch.setenv("PULUMI_BACKEND_URL", "azblob://state?storage_account=a")
    assert read_of("a") == "a"
    monkeypatch.setenv("PULUMI_BACKEND_URL", "azblob://state")
    assert read_of("b") == "b"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "c")
    assert read_of("c") == "c"
    assert read_of("kept") == "c"
    (project.root / ".trainyard/pulumi-home/credentials.json").write_text("[")
    assert read_of("kept") == "c"  # a login is not asked where the variable says it
    monkeypatch.delenv("PULUMI_BACKEND_URL")
    assert read_of("damaged") == "damaged"
    monkeypatch.setenv("PULUMI_CREDENTIALS_PATH", str(project.root))
    (project.root / "credentials.json").write_text('{"current": "s3://bucket"}')
    assert read_of("bucket") == "bucket"


def test_a_folder_backend_is_found_from_the_project_as_pulumi_finds_it(
    project, monkeypatch, tmp_path
):
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file://./backend")
    (project.root / "Pulumi.dev.yaml").touch()
    record = project.root / "backend/.pulumi/stacks/trainyard/dev.json"
    record.parent.mkdir(parents=True)
    record.touch()
    below = project.root / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert load_environment("dev").location == "local"


def test_a_stack_that_is_not_up_says_what_to_type(project):
    project.state.unlink()
    error = error_of(lambda: load_environment("local"))
    assert error.message == "stack `local` is not up"
    assert error.hint == "uv run pulumi up -s local"
    assert project.calls() == []

    project.record(resources=())
    project.say("", stderr="error: no stack named 'local' found\n", code=255)
    assert error_of(lambda: load_environment("local")).message == "stack `local` is not up"
    said = "error: current stack does not have output property 'environment'\n"
    project.say("", stderr=said, code=255)
    assert error_of(lambda: load_environment("local")).message == "stack `local` is not up"


def test_a_failure_of_pulumi_is_told_in_its_own_words(project):
    project.say("", stderr="warning: x\nerror: incorrect passphrase\n", code=255)
    error = error_of(lambda: load_environment("local"), EnvironmentFailure)
    assert error.message == "`pulumi stack output -s local` failed: incorrect passphrase"
    assert error.hint == "`pulumi stack output -s local` in the project's folder prints all of it"


@pytest.mark.parametrize("name", ["../../x", "a/b", "a\\b", ".hidden", "", "a\n"])
@pytest.mark.parametrize("field", ["location", "workspace"])
def test_a_name_that_leads_elsewhere_is_no_environment(field, name):
    value = {**ENVIRONMENT["workspace"], "name": name} if field == "workspace" else name
    text = json.dumps({**ENVIRONMENT, field: value}).encode()
    error = error_of(lambda: parse_environment(text, "x.json"))
    assert error.message.startswith("the environment of x.json is invalid: Expected `str` matching")


NO_LOGIN = "PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions"
NO_AZURE = """read ".pulumi/meta.yaml": (code=Unknown): DefaultAzureCredential: failed to acquire a token.
Attempted credentials:
\tTo troubleshoot, visit https://aka.ms/azsdk/go/identity/troubleshoot#managed-id"""

NO_AZD = (
    "DefaultAzureCredential: failed to acquire a token: AzureDeveloperCLICredential: not logged in"
)


@pytest.mark.parametrize(
    ("said", "reason", "hint"),
    [
        (
            NO_LOGIN,
            "Pulumi is not logged in",
            "uv run pulumi login, or export PULUMI_BACKEND_URL=... where the state is in a bucket "
            "(docs/azure-state.md); to run jobs only: --env FILE, which the stack's owner exports",
        ),
        (NO_AZURE, NO_AZURE.partition("\n")[0], "az login, then type the same again"),
        (NO_AZD, NO_AZD, "az login, then type the same again"),
    ],
    ids=["no login", "no login to Azure", "no login to Azure by azd"],
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
            "the environment of x is invalid: Expected `str`, got `int` - at `$.stack`",
        ),
        (
            json.dumps(ENVIRONMENT | {"clusters": {"cpu": {"compute": "a"}}}),
            "the environment of x is invalid: Object missing required field `size` "
            "- at `$.clusters[...]`",
        ),
        (
            json.dumps(ENVIRONMENT | {"key": "secret"}),
            "the environment of x is invalid: Object contains unknown field `key`",
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
