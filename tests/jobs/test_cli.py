"""`launch` itself as it is typed: its help, its options, mistakes, and streams that are closed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from jobs.cli import VERBS, main
from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import KeyVault
from tests.fakes.launching import FakeEngine

LAUNCH = Path(sys.executable).with_name("launch")


def test_the_help_lists_every_verb(launching):
    typed = launching.type_bare("--help")
    listed = typed.out.partition("\nCommands:\n")[2].partition("\n\n")[0]
    assert (typed.code, typed.err) == (0, "")
    assert dict(line.split(maxsplit=1) for line in listed.splitlines()) == VERBS
    assert launching.type_bare("-h").out == typed.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(launching, verb):
    typed = launching.type_bare(verb, "--help")
    assert (typed.code, typed.err) == (0, "")
    assert typed.out.startswith(f"Usage: launch {verb} ")


def test_nothing_typed_shows_the_help_as_a_mistake(launching):
    typed = launching.type_bare()
    assert (typed.code, typed.out) == (2, "")
    assert typed.err == launching.type_bare("--help").out


@pytest.mark.parametrize("group", ["data", "env", "image", "cluster"])
def test_a_group_alone_shows_its_help_as_a_mistake(launching, group):
    typed = launching.type_bare(group)
    assert (typed.code, typed.out) == (2, "")
    assert typed.err.startswith(f"Usage: launch {group} ")
    assert launching.type_bare(group, "--help").out == typed.err


EVERY_COMMAND = [
    *[
        "run",
        "plan",
        "bench",
        "predict",
        "init",
        "import",
        "jobs",
        "ls",
        "show",
        "logs",
        "stacks",
        "exec",
        "wait",
        "cancel",
        "fetch",
    ],
    *[
        "rerun",
        "diff",
        "keep",
        "rm",
        "prune",
        "report",
        "ui",
        "shell",
        "schema",
        "doctor",
        "completion",
    ],
    *(
        f"image {each}"
        for each in ["init", "lock", "install", "build", "push", "promote", "path", "ls"]
    ),
    *(f"model {each}" for each in ["register", "ls", "show", "fetch", "copy"]),
    *(f"data {each}" for each in ["prepare", "pack", "synthesize", "push", "pull", "ls"]),
    *(f"data {each}" for each in ["show", "diff", "copy", "rm", "register"]),
    *(f"env {each}" for each in ["ls", "show", "export", "import", "check", "repair", "trust"]),
    *(f"cluster {each}" for each in ["ls", "show", "pause", "resume", "resize"]),
]


def test_no_verb_is_missing_here():
    assert {line.split()[0] for line in EVERY_COMMAND} == VERBS.keys()


@pytest.mark.parametrize("line", EVERY_COMMAND)
def test_the_help_of_a_command_begins_with_its_line_in_the_list_above_it(launching, line):
    *above, name = line.split()
    typed = launching.type_bare(*line.split(), "--help")
    assert (typed.code, typed.err) == (0, "")
    text = typed.out.split("\n\n")[1]
    listed = launching.type_bare(*above, "--help").out
    found = re.search(rf"^  {name} +(.+)$", listed, re.MULTILINE)[1]
    assert " ".join(text.split()).startswith(found)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_options_stand_anywhere_among_the_arguments(launching, place):
    words = [launching.add_run(name="a"), launching.add_run(name="b")]
    words.insert(place, "--json")
    found = launching.type("diff", *words).json()
    assert (found["a"]["name"], found["b"]["name"]) == ("a", "b")


def test_the_stack_is_that_of_the_variable_when_none_is_typed(launching, monkeypatch):
    monkeypatch.setenv("TRAINYARD_STACK", "azure")
    assert "there is no stack `azure`" in launching.type_bare("ls").err
    assert "there is no stack `other`" in launching.type_bare("ls", "-s", "other").err


def test_a_value_may_begin_with_a_dash(launching):
    launching.add_run()
    typed = launching.type("logs", "last", "--grep", "-x")
    assert (typed.code, typed.err) == (0, "")


def test_the_version_is_printed(launching):
    assert launching.type_bare("--version").out == "launch 0.1.0\n"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["rnu", "x"], "there is no `launch rnu`", "did you mean `launch run`?"),
        (["xyzzy"], "there is no `launch xyzzy`", "see `launch --help`"),
        (["run"], "the following arguments are required: JOB", "see `launch run --help`"),
        (
            ["ls", "--jsno"],
            "no such option: --jsno (did you mean --json?)",
            "see `launch ls --help`",
        ),
        (
            ["ls", "--limit", "0"],
            "argument -n/--limit: `0` has to be a whole number, 1 or more",
            "see `launch ls --help`",
        ),
        (["logs", "--tail", "x"], None, "see `launch logs --help`"),
        (
            ["ls", "-s", "dev", "--env", "dev.json"],
            "argument --env: not allowed with argument -s/--stack",
            "see `launch ls --help`",
        ),
        (["show", "a", "b"], "unexpected argument: b", "see `launch show --help`"),
        (
            ["run", "a", "b"],
            "unexpected argument: b; `a` is not a script",
            "--set args.KEY=VALUE changes an argument of a job",
        ),
        (
            ["--verison"],
            "no such option: --verison (did you mean --version?)",
            "see `launch --help`",
        ),
        (
            ["ls", "--env", "dev.json", "-s", "dev"],
            "argument --env: not allowed with argument -s/--stack",
            "see `launch ls --help`",
        ),
        (["logs", "--tail"], "argument --tail: expected one argument", "see `launch logs --help`"),
        (["ls", "--json=x"], "argument --json: takes no value", "see `launch ls --help`"),
        (
            ["schema", "jbo"],
            "argument NAME: invalid choice: 'jbo' (choose from 'job', 'environment')",
            "see `launch schema --help`",
        ),
        (["diff"], "the following arguments are required: RUN, RUN", "see `launch diff --help`"),
        (["cancel"], "the following arguments are required: RUN", "see `launch cancel --help`"),
        (
            ["data", "pull", "x"],
            "the following arguments are required: --to",
            "see `launch data pull --help`",
        ),
        (["--"], "a command is missing", "see `launch --help`"),
        (["data", "--"], "a command is missing", "see `launch data --help`"),
        (["--version=3"], "argument --version: takes no value", "see `launch --help`"),
        # An option is not abbreviated: a new one would change what a script means.
        (["ls", "--js"], None, "see `launch ls --help`"),
        (
            ["data", "psuh"],
            "there is no `launch data psuh`",
            "did you mean `launch data push`?",
        ),
        (
            ["data", "push", "x"],
            "the following arguments are required: NAME",
            "see `launch data push --help`",
        ),
    ],
)
def test_a_usage_mistake_ends_with_2(launching, words, message, hint):
    typed = launching.type_bare(*words)
    assert (typed.code, typed.out) == (2, "")
    assert typed.err.endswith(f"\n\nhint: {hint}\n")
    if message:
        assert typed.err == f"error: {message}\n\nhint: {hint}\n"


def test_debug_gives_the_traceback_wherever_it_stands(launching):
    for words in (["--debug", "run", "nothing"], ["run", "nothing", "--debug"]):
        with pytest.raises(LaunchError, match="there is no job `nothing`"):
            main(words)


# --- bad input: one message, the documented code, nothing half done ----------------------------


def other_schema(launching):
    text = launching.env_file.read_text().replace('"schema":1', '"schema":9')
    launching.env_file.write_text(text)


def unwritable(launching):
    launching.workspace.write_text("a file where the folder has to be")


@pytest.mark.parametrize(
    ("words", "before", "code", "message"),
    [
        (["nothing"], None, 102, "there is no job `nothing`"),
        (["job.yaml", "--set", "lancher=mpi"], None, 2, "unknown key `lancher`"),
        (["job.yaml", "--set", "nodes=two"], None, 2, "`nodes` has to be a whole number"),
        (["job.yaml", "--set", "script=gone.py"], None, 2, "the script `gone.py` is not there"),
        (["job.yaml", "--nodes", "3"], None, 3, "takes at most 2 nodes x 4 processes"),
        (["job.yaml", "--cluster", "gpu"], None, 2, "has no cluster `gpu`"),
        (["job.yaml", "--nodes", "0"], None, 2, "`nodes` has to be a whole number of at least 1"),
        (["job.yaml", "--nodes", "two"], None, 2, "and is the text `two`"),
        (["job.yaml", "--set", "nodes=[1]"], None, 2, "and is a list"),
        (["job.yaml", "--set", "limits.wall_clock=banana"], None, 2, "has to be a duration"),
        (["job.yaml", "--set", "env.9=x"], None, 2, "`9` in `env` has to be a variable's name"),
        (["job.yaml", "--set", "args={a"], None, 2, "expected ',' or '}'"),
        (["job.yaml", "--set", "secrets.NO_SUCH_TOKEN=x"], None, 2, "no value for the secret"),
        (["."], None, 2, "`.` is a folder, not a job file"),
        (["job.yaml"], other_schema, 2, "schema 9"),
        (["job.yaml"], unwritable, 1, "cannot write a run in"),
    ],
)
def test_bad_input_gives_one_message_and_leaves_nothing(
    launching, job, words, before, code, message
):
    if before:
        before(launching)
    typed = launching.type("run", *words)
    assert (typed.code, typed.out) == (code, "")
    assert message in typed.err
    assert typed.err.count("error: ") == typed.err.count("\n\nhint: ") == 1
    if before is not unwritable:
        assert launching.run_folders() == []


def test_a_stack_that_is_not_up_says_what_to_type(launching, job, monkeypatch):
    (launching.folder / "Pulumi.yaml").write_text("name: trainyard\n")
    (launching.folder / "Pulumi.local.yaml").write_text("config: {}\n")
    typed = launching.type_bare("run", job, "-s", "local")
    assert (typed.code, launching.run_folders()) == (2, [])
    assert "pulumi up -s local" in typed.err


def test_an_unknown_stack_names_the_nearest(launching):
    (launching.folder / "Pulumi.yaml").write_text("name: trainyard\n")
    (launching.folder / "Pulumi.local.yaml").write_text("config: {}\n")
    typed = launching.type_bare("ls", "-s", "locla")
    assert (typed.code, typed.err) == (
        2,
        f"error: there is no stack `locla`: no Pulumi.locla.yaml in {launching.folder}\n\n"
        "hint: did you mean `local`?\n",
    )


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_error(launching, redirection):
    launching.add_run()
    command = f"{LAUNCH} ls --env {launching.env_file} {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["--help"], ["ls", "--help"], ["--version"], ["schema"]])
def test_a_reader_that_left_ends_it_as_sigpipe_would(words):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [LAUNCH, *words], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_working_folder_that_is_gone_is_named(launching, tmp_path_factory, monkeypatch):
    gone = tmp_path_factory.mktemp("gone")
    monkeypatch.chdir(gone)
    gone.rmdir()
    typed = launching.type_bare("ls", "-s", "local")
    assert (typed.code, typed.err) == (
        1,
        "error: the working folder was deleted\n\nhint: cd to an existing folder\n",
    )


def test_a_vault_keeps_secrets_from_being_looked_for(launching, job):
    launching.write_environment(
        msgspec.structs.replace(launching.environment, key_vault=KeyVault(uri="https://v"))
    )
    assert launching.type("run", job, "--set", "secrets.NO_SUCH_TOKEN=x").code == 0
    assert FakeEngine.submitted[0][1] == {}
