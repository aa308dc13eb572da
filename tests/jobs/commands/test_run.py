"""`launch run` and `launch plan`: what they print, ask and refuse, and what reaches the engine."""

import shlex

import msgspec
import pytest

from jobs.engines import ENGINES
from jobs.host.project import project_root
from tests.fakes.launching import FakeEngine

APART = (
    "nothing connects the 2 processes: each trains a model of its own; "
    "`launcher: torch`, `horovod`, `tensorflow` or `mpi` joins them"
)


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
