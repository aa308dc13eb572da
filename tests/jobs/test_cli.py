"""The verbs of `launch` as they are typed: what they print, where, and their exit codes."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from jobs.cli import VERBS, main
from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import KeyVault, RunState
from jobs.engines import ENGINES
from jobs.engines.local.runs import LocalRuns
from jobs.host import console
from jobs.host.project import project_root
from jobs.runs.run_folder import RunEvent, append_event
from jobs.runs.supervision import take_lock
from tests.fakes.launching import FakeEngine

LAUNCH = Path(sys.executable).with_name("launch")
JOB = """\
name: first
image: pytorch
script: train.py
args: {epochs: 3}
processes_per_node: 2
"""
APART = (
    "nothing connects the 2 processes: each trains a model of its own; "
    "`launcher: torch`, `horovod`, `tensorflow` or `mpi` joins them"
)


@pytest.fixture
def job(launching):
    (launching.folder / "train.py").write_text("")
    return launching.write_job(JOB)


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
    *(
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
        "rerun",
        "diff",
    ),
    *("keep", "rm", "prune", "report", "ui", "shell", "schema", "doctor", "completion"),
    *(
        f"image {each}"
        for each in ("init", "lock", "install", "build", "push", "promote", "path", "ls")
    ),
    *(f"model {each}" for each in ("register", "ls", "show", "fetch", "copy")),
    *(f"data {each}" for each in ("prepare", "pack", "synthesize", "push", "pull", "ls")),
    *(f"data {each}" for each in ("show", "diff", "copy", "rm", "register")),
    *(f"env {each}" for each in ("ls", "show", "export", "import", "check", "repair", "trust")),
    *(f"cluster {each}" for each in ("ls", "show", "pause", "resume", "resize")),
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


# --- run ---------------------------------------------------------------------------------------


def test_run_prints_the_id_and_the_lines_on_stdout_the_rest_on_stderr(launching, job):
    typed = launching.type("run", job)
    run = launching.runs()[0]
    assert typed.code == 0
    assert typed.out == f"{run.id}\n[0] hello\n[1] there\n"
    env = f" --env {launching.env_file}"
    size = sum(each.stat().st_size for each in launching.folder.iterdir() if each.is_file())
    assert typed.err == (
        "job       first\n"
        "cluster   cpu of stack local (local)\n"
        "size      1 node x 2 processes\n"
        "image     pytorch\n"
        "launcher  none\n"
        "command   python train.py --epochs 3\n"
        f"code      {launching.folder} (3 files, {size} B)\n"
        "limits    hang 30 min\n"
        "price     free\n"
        "forecast  not known: no run of this job on local has told its rate; "
        "run it once, e.g. with --nodes 1\n"
        f"note      {APART}\n"
        "\n"
        "\n"
        f"{run.id} completed after 42 s\n"
        f"outputs  {run.run_dir}/outputs\n"
        "\n"
        "next:\n"
        f"├── figures and curves  launch report {run.id}{env}\n"
        f"├── outputs and logs    launch fetch {run.id}{env}\n"
        f"├── read the log        launch logs {run.id}{env}\n"
        f"└── once more           launch rerun {run.id}{env}\n"
    )


def test_a_failed_run_names_rank_host_cause_and_traceback(launching, job):
    typed = launching.type("run", job, "--set", "env.ENDS_AS=failed")
    run = launching.runs()[0]
    assert typed.code == 100
    summary = typed.err.partition(f"{APART}\n\n\n")[2]
    assert summary.startswith(
        f"{run.id} failed after 42 s: rank 1 on node-a: uncaught exception: ValueError: no luck\n"
        "Traceback (most recent call last):\n"
        "ValueError: no luck\n\n"
        "next:\n"
        f"├── read the log      launch logs {run.id} --rank 1 --env {launching.env_file}\n"
    )


def test_a_cancelled_run_ends_with_103(launching, job):
    assert launching.type("run", job, "--set", "env.ENDS_AS=cancelled").code == 103


def test_detached_prints_the_id_alone(launching, job):
    typed = launching.type("run", job, "--detach")
    assert (typed.code, typed.out) == (0, f"{launching.runs()[0].id}\n")


def test_run_with_json_prints_one_object(launching, job):
    typed = launching.type("run", job, "--json")
    assert list(typed.json()) == [
        *("id", "name", "state", "reason", "exit_code", "stack", "cluster", "nodes"),
        *("world_size", "created", "started", "ended", "run_dir", "experiment", "tags"),
    ]
    assert typed.json()["state"] == "completed"


@pytest.mark.parametrize("words", [["plan"], ["run", "--dry-run"]])
def test_a_plan_starts_nothing(launching, job, words):
    typed = launching.type(words[0], job, *words[1:], "--json", "--nodes", "2")
    assert typed.code == 0
    assert typed.json()["request"] == {
        "compute": "cpu-test",
        "argv": ["python", "train.py", "--epochs", "3"],
        "code": {
            "num_files": 3,
            "bytes": sum(each.stat().st_size for each in launching.folder.iterdir()),
            "left_out": [],
        },
    }
    assert typed.json()["spec"]["nodes"] == 2
    assert FakeEngine.submitted == []


@pytest.fixture
def nothing_built(monkeypatch, tmp_path_factory):
    """A machine with an empty cache, and the engine that looks into it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setitem(ENGINES, "local", "jobs.engines.local.engine:LocalEngine")


NOT_BUILT = "image `pytorch` is not installed on this machine"
NO_SECRET = "no value for the secret `NO_SUCH_TOKEN`"


@pytest.mark.parametrize("words", [["plan"], ["run", "--dry-run"]])
def test_a_plan_notes_what_run_would_refuse_for(launching, job, nothing_built, words):
    words = [words[0], job, *words[1:], "--set", "secrets.NO_SUCH_TOKEN=x"]
    place = launching.folder / ".secrets.env"
    notes = [
        f"{NOT_BUILT}; hint: launch image install pytorch",
        f"{NO_SECRET}; hint: export NO_SUCH_TOKEN=..., or a line NO_SUCH_TOKEN=... in {place} "
        "(git-ignored)",
    ]
    typed = launching.type(*words)
    assert typed.code == 0
    assert typed.out.startswith("job       first\n")
    assert typed.err == "".join(f"warning: {note}\n" for note in notes)
    typed = launching.type(*words, "--json")
    assert (typed.code, typed.err, typed.json()["notes"]) == (0, "", [APART, *notes])


def test_a_plan_notes_an_image_that_does_not_exist(launching, job, nothing_built):
    typed = launching.type("plan", job, "--set", "image=pytroch", "--json")
    assert typed.code == 0
    assert [note.partition(";")[0] for note in typed.json()["notes"]] == [
        APART.partition(";")[0],
        f"no image `pytroch` in {project_root() / 'images'}",
    ]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 1, NOT_BUILT),
        (["--set", "image=pytroch"], 102, "no image `pytroch` in "),
        (["--set", "secrets.NO_SUCH_TOKEN=x"], 2, NO_SECRET),
    ],
)
def test_run_refuses_what_is_missing_and_leaves_nothing(
    launching, job, nothing_built, words, code, message
):
    typed = launching.type("run", job, "--yes", *words)
    assert (typed.code, typed.out) == (code, "")
    assert f"error: {message}" in typed.err
    # Neither a run nor a place in the queue.
    assert [each for each in launching.workspace.rglob("*") if each.is_file()] == []


def test_options_and_set_reach_the_job(launching, job):
    words = ["--nodes", "2", "--priority", "high", "--set", "args.epochs=7", "--set", "env.A=1"]
    launching.type("run", job, *words)
    spec = FakeEngine.submitted[0][0].spec
    assert (spec.nodes, spec.priority) == (2, "high")
    assert (spec.command, spec.env) == (("python", "train.py", "--epochs", "7"), {"A": "1"})


def test_secrets_go_to_submit_and_nowhere_else(launching, job, monkeypatch):
    monkeypatch.setenv("TOKEN", "hunter2")
    typed = launching.type("run", job, "--set", "secrets.TOKEN=token")
    plan, secrets = FakeEngine.submitted[0]
    assert secrets == {"TOKEN": "hunter2"}
    assert b"hunter2" not in msgspec.json.encode(plan)
    assert "hunter2" not in typed.out + typed.err


def test_a_missing_secret_starts_nothing(launching, job):
    typed = launching.type("run", job, "--set", "secrets.TRAINYARD_NO=x")
    assert typed.code == 2
    typed = launching.type("run", job, "--set", "secrets.NO_SUCH_TOKEN=x")
    assert (typed.code, FakeEngine.submitted) == (2, [])
    assert typed.err.startswith("error: no value for the secret `NO_SUCH_TOKEN`\n\nhint: export ")


def test_money_is_asked_for_once_and_only_where_it_is_spent(launching, job):
    cluster = msgspec.structs.replace(
        launching.environment.clusters["cpu"], price_per_node_hour=3.06, currency="USD"
    )
    launching.write_environment(
        msgspec.structs.replace(launching.environment, clusters={"cpu": cluster})
    )
    typed = launching.type("run", job, "--nodes", "2", "--set", "limits.wall_clock=2h")
    assert typed.code == 2
    assert "price     6.12 USD/h, at most 12.24 USD\n" in typed.err
    assert typed.err.endswith("hint: add --yes to answer every question with yes\n")
    assert FakeEngine.submitted == []
    assert launching.type("run", job, "--yes").code == 0
    assert len(FakeEngine.submitted) == 1


def test_a_no_names_what_shows_the_same_without_a_question(launching, job, monkeypatch):
    cluster = msgspec.structs.replace(
        launching.environment.clusters["cpu"], price_per_node_hour=3.06, currency="USD"
    )
    launching.write_environment(
        msgspec.structs.replace(launching.environment, clusters={"cpu": cluster})
    )
    monkeypatch.setattr("jobs.host.console.confirm", lambda _: False)
    typed = launching.type("run", job, "--nodes", "2", "--set", "args.note=a b")
    shown = f"launch plan {job} --nodes 2 --set 'args.note=a b' --env {launching.env_file}"
    assert (typed.code, FakeEngine.submitted) == (3, [])
    assert typed.err.endswith(
        f"error: not started\n\nhint: `{shown}` shows it without a question\n"
    )
    assert "2 nodes x 2" in launching.type_bare(*shlex.split(shown)[1:]).out

    run = launching.add_run()
    hint = f"hint: `launch show {run} --env {launching.env_file}` shows it without a question\n"
    assert launching.type("rerun", run).err.endswith(hint)


# --- reading -----------------------------------------------------------------------------------


def test_ls_is_newest_first_and_limited(launching):
    ids = [launching.add_run(name=f"j{n}") for n in range(4)]
    listed = launching.type("ls", "--json").json()
    assert [run["id"] for run in listed] == ids[::-1]
    typed = launching.type("ls", "--limit", "2")
    assert [line.split()[:3] for line in typed.out.splitlines()] == [
        ["RUN", "NAME", "STATE"],
        [ids[3], "j3", "completed"],
        [ids[2], "j2", "completed"],
    ]
    assert typed.err == "the newest 2; --all shows every run\n"
    assert len(launching.type("ls", "--all", "--json").json()) == 4


@pytest.mark.parametrize("words", [["-n", "2"], ["-n2"], ["--limit=2"]])
def test_ls_is_the_same_however_it_is_parsed(launching, words):
    launching.add_run(), launching.add_run(), launching.add_run()
    typed = launching.type("ls", *words, "--json")
    assert typed.json() == launching.type("ls", "--json").json()[:2]


def test_ls_chooses_runs_before_it_counts_them(launching):
    tags = {"team": "vision", "seed": "1"}
    first = launching.add_run(name="resnet50-a", tags=tags, experiment="sweep")
    second = launching.add_run(name="resnet50-b", ends_as="failed")
    launching.add_run(name="digits", ends_as="cancelled", tags={"team": "audio"})

    def ids(*words):
        return [run["id"] for run in launching.type("ls", "--json", *words).json()]

    assert ids("--name", "resnet50-*") == [second, first]
    assert ids("--name", "resnet50-*", "-n", "1") == [second]
    assert ids("--experiment", "sweep") == ids("--tag", "seed") == [first]
    assert ids("--tag", "team=vision", "--tag", "seed=1") == [first]
    assert ids("--tag", "team=vision", "--tag", "seed=2") == []
    assert ids("--state", "failed", "--state", "completed") == [second, first]
    assert len(ids("--since", "1h")) == 3
    assert ids("--since", "2999-01-01") == []
    typed = launching.type("ls", "--state", "running")
    assert (typed.code, typed.out, typed.err) == (0, "", "no run matches\n")
    typed = launching.type("ls", "--state", "done")
    assert (typed.code, typed.out) == (2, "")
    assert "hint: one of queued, preparing, running, completed" in typed.err


def test_ls_shows_short_ids_on_a_terminal_and_whole_ones_elsewhere(launching, monkeypatch):
    run = launching.add_run(name="a" * 60)
    assert launching.type("ls").out.splitlines()[1].split()[:2] == [run, "a" * 60]
    monkeypatch.setattr(console, "terminal_width", lambda: 80)
    shown = launching.type("ls").out.splitlines()
    assert max(map(len, shown)) <= 80
    short = shown[1].split()[0]
    assert short == run[:15]
    assert launching.type("show", short).out.splitlines()[0].split() == ["run", run]


def test_a_waited_for_run_ends_with_its_figures_and_its_model(launching):
    run = launching.add_run(outputs=("model",))
    run_dir = launching.workspace / "runs" / run
    lines = [
        {"step": 1, "split": "val", "name": "bleu", "value": 0.5},
        {"step": 2, "split": "val", "name": "bleu", "value": 0.25},
    ]
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    typed = launching.type("wait", run)
    assert (typed.code, typed.out) == (0, "")
    told = {
        "val bleu": "0.2500 (best 0.5000 at step 1)",
        "model": f"{run_dir}/outputs/model",
        "fetch with": f"launch fetch {run} --env {launching.env_file}",
    }
    lines = [f"{key:10}  {value}" for key, value in told.items()]
    assert typed.err.splitlines() == [f"{run} completed after 42 s", *lines]
    shown = launching.type("show", run).out.splitlines()
    assert [line for line in shown if line in lines] == lines


def test_ls_without_runs_says_what_to_type(launching):
    typed = launching.type("ls")
    assert (typed.code, typed.out, typed.err) == (0, "", "no run yet; launch run digits\n")
    assert launching.type("ls", "--json").json() == []


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ([], "[0] hello\n[1] there\n"),
        (["--rank", "1"], "[1] there\n"),
        (["--rank", "0-1"], "[0] hello\n[1] there\n"),
        (["-t", "--rank", "0"], "[0] 2026-01-02T03:04:05.000006Z hello\n"),
        (
            ["--json", "--rank", "1"],
            '{"ts":"2026-01-02T03:04:05.000006Z","rank":1,"text":"there"}\n',
        ),
    ],
)
def test_logs_are_prefixed_by_rank(launching, words, lines):
    launching.add_run()
    typed = launching.type("logs", "last", *words)
    assert (typed.code, typed.out, typed.err) == (0, lines, "")


def test_logs_of_a_parameter_server_follow_those_of_the_ranks(launching):
    launching.add_run(processes_per_node=1, parameter_servers=1)
    assert launching.type("logs", "last", "--rank", "1").out == "[1] there\n"
    assert "the run has the ranks 0 to 1" in launching.type("logs", "last", "--rank", "2").err


def test_following_logs_ends_as_the_run_did(launching):
    run = launching.add_run(ends_as="failed")
    typed = launching.type("logs", "-f", run)
    assert (typed.code, typed.out) == (100, "[0] hello\n[1] there\n")
    assert (
        f"{run} failed after 42 s: rank 1 on node-a: uncaught exception: ValueError: no luck\n"
        in typed.err
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rank", "x"], "`--rank x`: `x` is not a rank"),
        (["--rank", "2"], "`--rank 2`: the run has the ranks 0 to 1"),
        (["--rank", "3-1"], "`--rank 3-1`: the run has the ranks 0 to 1"),
        (["--rank", "1-0"], "`--rank 1-0` names no rank"),
        (
            ["--grep", "*"],
            "`--grep *` is not a regular expression: nothing to repeat at position 0",
        ),
    ],
)
def test_what_logs_cannot_select_is_a_usage_mistake(launching, words, message):
    launching.add_run()
    typed = launching.type("logs", "last", *words)
    assert typed.code == 2
    assert typed.err.startswith(f"error: {message}\n")


@pytest.mark.parametrize("number", ["²", "9" * 5000, "\udcff"])
@pytest.mark.parametrize(
    "words",
    [
        ["wait", "--timeout"],
        ["logs", "--rank"],
        ["logs", "--tail"],
        ["ls", "--limit"],
        ["run", "JOB", "--nodes"],
        ["plan", "JOB", "--processes-per-node"],
        ["plan", "JOB", "--set", "args.text=", "--cluster"],
    ],
    ids=" ".join,
)
def test_what_python_takes_for_no_number_is_a_usage_mistake(launching, job, words, number):
    launching.add_run()
    typed = launching.type(*(job if word == "JOB" else word for word in words), number)
    assert (typed.code, typed.out) == (2, "")
    assert typed.err.startswith("error: ")
    assert "bug in launch" not in typed.err


@pytest.mark.parametrize(
    ("ends_as", "words", "code"),
    [
        ("completed", [], 0),
        ("failed", [], 100),
        ("failed", ["--passthrough"], 3),
        ("cancelled", [], 103),
        ("cancelled", ["--passthrough"], 103),
    ],
)
def test_wait_ends_as_the_run_did(launching, ends_as, words, code):
    launching.add_run(ends_as=ends_as)
    assert launching.type("wait", "last", *words).code == code


def test_wait_passes_a_signal_through_as_a_shell_does(launching):
    run = launching.add_run(ends_as="failed")
    killed = RunEvent(ts="2026-01-02T03:04:48Z", state=RunState.FAILED, exit_code=-signal.SIGTERM)
    append_event(launching.workspace / "runs" / run, killed)
    assert launching.type("wait", run, "--passthrough").code == 143


def test_wait_gives_up_after_its_timeout(launching):
    run = launching.add_run(ends_as="running")
    # A run that nobody looks after would be `lost`, so its lock is held here.
    lock = take_lock(launching.workspace / "runs" / run)
    try:
        typed = launching.type("wait", run, "--timeout", "0.1s")
    finally:
        os.close(lock)
    assert (typed.code, typed.err) == (101, f"{run} running\n")


@pytest.mark.parametrize("given", ["soon", "-1", "nan", "inf", "1e999", ""])
def test_wait_wants_a_length_of_time(launching, given):
    launching.add_run()
    typed = launching.type("wait", "last", f"--timeout={given}")
    assert (typed.code, typed.err) == (
        2,
        f"error: invalid duration `--timeout {given}`\n\nhint: for example 90s, 10m or 2h\n",
    )


@pytest.mark.parametrize("given", ["90", "60.0", "0.5", "1e3", "2h", "0", "1e-05"])
def test_wait_takes_a_bare_number_for_seconds(launching, given):
    launching.add_run()
    assert launching.type("wait", "last", "--timeout", given).code == 0


def test_cancel_of_a_run_that_is_over_changes_nothing(launching):
    run = launching.add_run()
    for _ in range(2):
        typed = launching.type("cancel", run)
        assert (typed.code, typed.err) == (0, f"{run} was over already (completed)\n")


def test_cancel_looks_up_every_name_before_it_ends_one(launching):
    run = launching.add_run()
    assert launching.type("cancel", run, "19990101").code == 102
    assert FakeEngine.cancelled == []


def test_cancel_ends_the_others_where_one_cannot_be_ended(launching, monkeypatch):
    first, second, third = (launching.add_run() for _ in range(3))
    monkeypatch.setattr(FakeEngine, "cancelled", [])

    def cancel(engine, handle):
        if handle.id != second:
            raise EnvironmentFailure(f"no way to {handle.id}", hint="try")
        engine.cancelled.append(handle.id)

    monkeypatch.setattr(FakeEngine, "cancel", cancel)
    typed = launching.type("cancel", first, second, third)
    assert FakeEngine.cancelled == [second]
    assert typed.code == 1
    assert f"{second} was over already" in typed.err
    for run in (first, third):
        assert f"error: no way to {run}\n" in typed.err


def test_cancel_ends_a_run_whose_state_nobody_tells(launching, monkeypatch):
    run = launching.add_run()
    monkeypatch.setattr(FakeEngine, "cancelled", [])

    def status(store, handle):
        raise EnvironmentFailure("no answer", hint="wait")

    monkeypatch.setattr(LocalRuns, "status", status)
    typed = launching.type("cancel", run)
    assert (FakeEngine.cancelled, typed.code) == ([run], 101)
    assert f"{run} was told to end; whether it did is unknown: no answer" in typed.err


def test_fetch_prints_the_folder(launching):
    run = launching.add_run()
    assert launching.type("fetch", run).out == f"{run}\n"
    typed = launching.type("fetch", run, "--into", "there")
    assert typed.out == "there\n"


def test_show_tells_why_a_run_failed(launching):
    run = launching.add_run(ends_as="failed")
    typed = launching.type("show", run)
    told = dict(line.split(maxsplit=1) for line in typed.out.splitlines()[:5])
    assert told == {
        "run": run,
        "name": "test",
        "state": "failed",
        "reason": "rank 1 on node-a: uncaught exception: ValueError: no luck",
        "exit": "code   3",
    }
    assert typed.out.endswith("\nTraceback (most recent call last):\nValueError: no luck\n")
    shown = launching.type("show", run, "--json").json()
    assert (shown["id"], shown["state"], shown["error"]["rank"]) == (run, "failed", 1)
    assert [event["state"] for event in shown["events"]] == ["queued", "running", "failed"]


@pytest.mark.parametrize("verb", ["show", "logs", "wait", "cancel", "fetch", "rerun"])
def test_an_unknown_run_is_not_found(launching, verb):
    launching.add_run()
    typed = launching.type(verb, "19990101")
    assert (typed.code, typed.err) == (
        102,
        "error: there is no run `19990101`\n\nhint: launch ls\n",
    )


def test_a_run_is_named_by_the_beginning_of_its_id_or_last(launching):
    first, second = launching.add_run(), launching.add_run()
    assert launching.type("show", "last", "--json").json()["id"] == second
    shortest = next(n for n in range(1, 21) if not second.startswith(first[:n]))
    assert launching.type("show", first[:shortest], "--json").json()["id"] == first
    shared = first[: shortest - 1]
    typed = launching.type("show", shared)
    assert (typed.code, typed.err) == (
        2,
        f"error: `{shared}` fits 2 runs\n\nhint: one of {second}, {first}\n",
    )


# --- once more, and the difference -------------------------------------------------------------


def test_rerun_runs_the_same_with_what_is_set(launching, job):
    launching.type("run", job, "--detach", "--set", "limits.wall_clock=90m", "--set", "tags.a=b")
    launching.type("rerun", "last", "--set", "args.epochs=9", "--set", "args.amp=true")
    first, second = (plan.spec for plan, _ in FakeEngine.submitted)
    assert second == msgspec.structs.replace(
        first, command=("python", "train.py", "--epochs", "9", "--amp")
    )


def test_a_rerun_drops_no_word_behind_an_option_unsaid(launching):
    command = "[python, main.py, -a, r50, --lr, 0.1, --fine, /data]"
    launching.type("run", launching.write_job(f"name: x\nimage: none\ncommand: {command}\n"), "-d")

    def planned(*assignments):
        words = [f"--set={each}" for each in assignments]
        typed = launching.type("rerun", "last", "--dry-run", "--json", *words)
        return typed.json()["spec"]["command"] if typed.code == 0 else typed.err

    assert "`--set args.fine=false` drops `/data`" in planned("args.fine=false", "args.lr=0.2")
    head = ["python", "main.py", "-a", "r50", "--lr", "0.2"]
    assert planned("args.lr=0.2") == [*head, "--fine", "/data"]
    assert planned("args.lr=0.2", "args.fine=[]") == head
    assert planned("args=[-a, r50, --lr, 0.2, /data]") == [*head, "/data"]


def test_a_rerun_of_a_notebook_sets_its_parameters(launching):
    (launching.folder / "train.ipynb").write_text('{"cells": []}')
    head = "name: x\nimage: none\nscript: train.ipynb\nprocesses_per_node: 1\n"
    given = "args: {batch-size: 8, lr: 0.1, tags: [a], amp: true, note: '1'}\n"
    for text in (head + given, head):
        launching.type("run", launching.write_job(text), "--detach")

        def planned(*assignments):
            words = [f"--set={each}" for each in assignments]
            typed = launching.type("rerun", "last", "--dry-run", "--json", *words)
            return typed.json()["spec"]["command"] if typed.code == 0 else typed.err

        recorded = list(FakeEngine.submitted[-1][0].spec.command)
        assert planned() == recorded
        before = json.loads(recorded[3]) if text != head else {}
        *same, parameters = planned("args.lr=1e-3", "args.amp=false", "args.batch-size=16")
        assert same == recorded[:3]
        assert json.loads(parameters) == {**before, "lr": 0.001, "amp": False, "batch_size": 16}
        assert "is not the name of a variable" in planned("args.1=2")
        assert "a notebook has parameters" in planned("args=[1, 2]")


def test_a_rerun_of_our_programs_knows_what_each_option_takes(launching):
    launching.type("run", "mnist-synthetic", "--set", "args.seed=3")
    typed = launching.type("rerun", "last", "--dry-run", "--json", "--set", "args.seed=null")
    assert "--seed" not in typed.json()["spec"]["command"]


def test_what_is_set_behind_a_script_drops_no_word_of_its_arguments(launching):
    (launching.folder / "s.py").write_text("import torch\n")

    def planned(*sets):
        words = ("s.py", "--json", "--env", str(launching.env_file), *sets)
        typed = launching.type_bare("plan", *words, "--", "--lr", "0.1", "/data")
        return typed.json()["spec"]["command"][2:] if typed.code == 0 else typed.err

    assert planned() == ["--lr", "0.1", "/data"]
    assert "`--set args.lr=0.2` drops `/data`" in planned("--set", "args.lr=0.2")
    assert planned("--set", "args.lr=[0.2, /data]") == ["--lr", "0.2", "/data"]
    assert planned("--set", "args.lr=[0.2]") == ["--lr", "0.2"]


def test_a_list_that_a_job_file_gives_to_an_option_is_replaced(launching):
    (launching.folder / "s.py").write_text("")
    job = launching.write_job("name: x\nimage: none\nscript: s.py\nargs: {sizes: [8, 16]}\n")
    typed = launching.type("plan", job, "--json", "--set", "args.sizes=4")
    assert typed.json()["spec"]["command"][2:] == ["--sizes", "4"]


def test_a_dry_rerun_shows_the_plan_and_starts_nothing(launching, job):
    run = launching.type("run", job, "--detach").out.strip()
    before = launching.run_folders()
    told = launching.type("rerun", run, "--set", "env.A=b", "--dry-run", "--json").json()
    assert told["spec"]["env"]["A"] == "b"
    planned = launching.type("plan", job, "--set", "env.A=b", "--json").json()
    assert told.keys() == planned.keys()
    assert launching.type("rerun", run, "--dry-run").out.splitlines()[0].split()[0] == "job"
    assert launching.run_folders() == before


def test_rerun_checks_what_is_set_by_the_options_of_our_program(launching):
    launching.type("run", "mnist-synthetic")
    ran = len(launching.runs())
    typed = launching.type("rerun", "last", "--set", "args.epohcs=9")
    assert (typed.code, typed.err) == (
        2,
        "error: --set args.epohcs=9: the program has no option `epohcs`\n\n"
        "hint: did you mean `epochs`?\n",
    )
    assert len(launching.runs()) == ran == 1
    launching.type("rerun", "last", "--set", "args.epochs=9")
    assert len(launching.runs()) == 2


def test_rerun_says_what_cannot_be_the_same(launching, job):
    launching.type("run", job, "--detach")
    clusters = launching.environment.clusters
    launching.write_environment(
        msgspec.structs.replace(launching.environment, clusters={"other": clusters["cpu"]})
    )
    typed = launching.type("rerun", "last", "--detach")
    assert typed.code == 0
    assert "warning: cluster `cpu` no longer exists; the first that fits is used\n" in typed.err


def test_rerun_says_that_the_copy_of_the_code_is_gone(launching, job):
    folder = launching.folder
    launching.add_run(code=str(folder))
    typed = launching.type("rerun", "last", "--detach")
    assert typed.code == 0
    assert (
        f"warning: the copy of its code was deleted; the current `{folder}` is used\n" in typed.err
    )


def test_rerun_takes_no_other_code(launching, job):
    launching.type("run", job, "--detach")
    typed = launching.type("rerun", "last", "--set", "code=elsewhere")
    assert (typed.code, len(FakeEngine.submitted)) == (2, 1)
    assert typed.err.startswith("error: a rerun keeps the code and the program of its run")


def test_rerun_finds_the_secrets_beside_the_job_file_from_anywhere(launching, job, monkeypatch):
    secrets = launching.folder / ".secrets.env"
    secrets.write_text("TOKEN=hunter2\n")
    secrets.chmod(0o600)
    elsewhere = launching.folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    launching.type("run", job, "--detach", "--set", "secrets.TOKEN=t")
    for _ in range(2):  # of a rerun, too
        typed = launching.type("rerun", "last", "--detach")
        assert typed.code == 0, typed.err
    assert [given for _, given in FakeEngine.submitted] == [{"TOKEN": "hunter2"}] * 3


def test_rerun_says_that_the_image_is_another(launching, job, monkeypatch):
    # The fake engine's runs have the image sha256:1.
    launching.type("run", job, "--detach")
    monkeypatch.setattr(
        "jobs.images.runtimes.runtime_root", lambda image, _: Path("/cache/pytorch-2")
    )
    typed = launching.type("rerun", "last", "--detach")
    assert "warning: image `pytorch` was sha256:1, now it is pytorch-2\n" in typed.err


def test_ls_shortens_a_long_reason(launching):
    launching.add_run(ends_as="failed", reason="x" * 60)
    assert launching.type("ls").out.splitlines()[1].endswith(f"  {'x' * 47}...")
    assert launching.type("ls", "--json").json()[0]["reason"] == "x" * 60


def test_diff_names_what_parts_two_runs(launching, job):
    launching.type("run", job, "--detach")
    launching.type("run", job, "--detach", "--set", "args.epochs=9", "--nodes", "2")
    second, first = [run.id for run in launching.runs()]
    found = launching.type("diff", first, second, "--json").json()
    assert found["differences"] == [
        {"key": "args.epochs", "a": "3", "b": "9"},
        {"key": "nodes", "a": "1", "b": "2"},
    ]
    typed = launching.type("diff", first, second)
    width = len(first)
    assert typed.out == (
        f"{'':<11}  {first}  {second}\n"
        f"state        {'completed':<{width}}  completed\n"
        f"args.epochs  {'3':<{width}}  9\n"
        f"nodes        {'1':<{width}}  2\n"
    )


@pytest.fixture
def damaged(launching):
    """The records of two runs: of the newer one its nested too deeply."""
    older, newer = launching.add_run(), launching.add_run()
    Path(launching.workspace, "runs", newer, "run.json").write_bytes(b'{"x": ' + b"[" * 200_000)
    return older, newer


def test_one_damaged_record_keeps_no_other_run_from_being_shown(launching, damaged):
    older, newer = damaged
    path = launching.workspace / "runs" / newer / "run.json"
    told = f"`{path}` is damaged: it is nested too deeply"
    listed = launching.type("ls", "--json")
    assert (listed.code, [each["id"] for each in listed.json()]) == (0, [older])
    assert listed.err == f"warning: {told}\n"
    reported = launching.type("report", older, newer, "--json")
    assert [each["id"] for each in reported.json()["runs"]] == [older]
    assert reported.err == f"warning: {told}\n"
    for words in (["show"], ["logs"], ["report"], ["wait"], ["rerun"], ["diff", older]):
        typed = launching.type(*words, newer)
        assert (typed.code, typed.err.splitlines()[0]) == (1, f"error: {told}"), words


def test_hostile_figures_end_no_report(launching):
    run = launching.add_run()
    run_dir = launching.workspace / "runs" / run
    summaries = (b"[" * 200_000, b'{"epochs": 1' + b"0" * 400 + b"}", b'{"epochs": "\xff"}')
    for summary in summaries:
        (run_dir / "summary.json").write_bytes(summary)
        (run_dir / "metrics.jsonl").write_bytes(summary + b"\n")
        typed = launching.type("report", run, "--json")
        assert (typed.code, typed.json()["runs"][0]["id"]) == (0, run), typed.err


def test_diff_wants_two_runs(launching):
    launching.add_run()
    typed = launching.type("diff", "last")
    assert (typed.code, typed.out) == (2, "")
    assert typed.err.startswith("error: the following arguments are required: RUN\n")


def test_diff_of_a_run_with_itself_says_so(launching):
    run = launching.add_run()
    typed = launching.type("diff", run, "last")
    assert (typed.code, typed.out) == (0, f"both are the same run, {run}\n")
    found = launching.type("diff", run, "last", "--json").json()
    assert (found["a"]["id"], found["b"]["id"], found["differences"]) == (run, run, [])


def test_diff_names_the_files_that_were_changed_and_not_committed(launching):
    first, second = launching.add_run(), launching.add_run()
    diff = "diff --git a/{0} b/{0}\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-1\n+2\n"
    add_git(launching, first, diff.format("train.py") + diff.format("a model.py"))
    add_git(launching, second, None)
    typed = launching.type("diff", first, second)
    assert typed.out.partition("\n\n")[2] == (
        "uncommitted changes differ:\n"
        f"{'RUN':<{len(first)}}  CHANGED\n"
        f"{first}  train.py, a model.py\n"
        f"{second}  nothing\n"
        "to read them: launch show RUN --json, under record.git.dirty_diff\n"
    )
    found = launching.type("diff", first, second, "--json").json()
    assert found["uncommitted"] == {"a": ["train.py", "a model.py"], "b": []}
    assert "--- a/train.py" in found["code_diff"]


def add_git(launching, run, dirty_diff):
    """Give a run's record the state of a checkout."""
    path = launching.workspace / "runs" / run / "run.json"
    record = msgspec.json.decode(path.read_bytes())
    record["git"] = {"commit": "0" * 40, "dirty_diff": dirty_diff}
    path.write_bytes(msgspec.json.encode(record))


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
