"""What the shell offers after Tab, and that it never sees an error."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryFile

import msgspec
import pytest

from jobs.cli import VERBS
from jobs.datasets.records import DatasetRecord
from jobs.host.project import project_root
from jobs.jobfile.read import catalog_names
from tests.fakes.local_server import name_server
from tests.fakes.scripted_server import answer as reply
from tests.fakes.scripted_server import scripted_server

LAUNCH = Path(sys.executable).with_name("launch")
SEPARATOR = "\v"

# What bash does when Tab is pressed at the end of a line.
PRESS_TAB = """
eval "$(launch completion bash)"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
COMP_WORDS=($1) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_python_argcomplete launch
printf '%s\\n' "${COMPREPLY[@]}"
"""


def answer(launching, line, **variables):
    """What `launch` answers to a shell that asks for the end of the line."""
    with TemporaryFile() as file:
        program = 'exec "$0" 8>&"$1"'
        done = subprocess.run(
            ["/bin/bash", "-c", program, LAUNCH, str(file.fileno())],
            env={
                **os.environ,
                "_ARGCOMPLETE": "1",
                "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
                "COMP_LINE": line,
                "COMP_POINT": str(len(line)),
                **variables,
            },
            cwd=launching.folder,
            capture_output=True,
            text=True,
            pass_fds=[file.fileno()],
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr.strip()) == (0, "", "")
        file.seek(0)
        return file.read().decode()


def complete(launching, line, **variables):
    """The choices that are offered at the end of the line."""
    return [word for word in answer(launching, line, **variables).split(SEPARATOR) if word]


def test_verbs_are_offered(launching):
    assert complete(launching, "launch r") == ["run", "rerun", "report"]
    assert complete(launching, "launch data p") == ["prepare", "pack", "push", "pull"]


def test_options_are_offered_once_a_dash_is_typed(launching):
    long = ["--help", "--limit", "--all", "--json", "--stack", "--env"]
    assert complete(launching, "launch ls --") == long
    assert complete(launching, "launch --") == ["--help", "--version", "--debug"]


def test_the_datasets_that_can_be_made_and_the_formats_of_shards_are_offered(launching):
    made = ["digits", "mnist", "hymenoptera", "coco", "imagenet"]
    assert complete(launching, "launch data prepare ") == made
    assert complete(launching, "launch data synthesize i") == ["imagenet"]
    assert complete(launching, "launch data pack --format t") == ["tar", "tfrecord"]


def test_jobs_of_the_catalog_and_job_files_are_offered(launching):
    launching.write_job("", "digest.yaml")
    launching.write_job("", "other.yml")
    launching.write_job("", "Pulumi.dev.yaml")
    (launching.folder / "sub").mkdir()
    launching.write_job("", "sub/job.yaml")
    assert complete(launching, "launch run dig") == ["digits", "digest.yaml"]
    everything = [*catalog_names(), "digest.yaml", "other.yml", "sub/"]
    assert complete(launching, "launch run ") == everything
    assert complete(launching, "launch plan sub/") == ["sub/job.yaml"]


def test_runs_are_offered_newest_first(launching):
    ids = [launching.add_run() for _ in range(3)]
    env = f"--env {launching.env_file}"
    assert complete(launching, f"launch logs {env} 2") == ids[::-1]
    assert complete(launching, f"launch show {env} ") == [*ids[::-1], "last"]
    assert complete(launching, f"launch cancel {env} {ids[0]} l") == ["last"]


def test_runs_are_offered_with_their_state(launching):
    run = launching.add_run(ends_as="failed")
    line = f"launch show --env {launching.env_file} "
    assert answer(launching, line, _ARGCOMPLETE_SHELL="zsh").split(SEPARATOR) == [
        f"{run}:failed test",
        f"last:failed test ({run})",
    ]


def test_stacks_clusters_and_priorities_are_offered(launching):
    expected = sorted(
        path.name.removeprefix("Pulumi.").removesuffix(".yaml")
        for path in project_root().glob("Pulumi.*.yaml")
    )
    assert complete(launching, "launch ls -s ") == expected
    env = f"--env {launching.env_file}"
    assert complete(launching, f"launch run {env} --cluster ") == ["cpu"]
    cluster = msgspec.structs.replace(launching.environment.clusters["cpu"], max_nodes=1)
    launching.write_environment(
        msgspec.structs.replace(launching.environment, clusters={"cpu": cluster})
    )
    line = f"launch run {env} --cluster "
    assert answer(launching, line, _ARGCOMPLETE_SHELL="zsh") == "cpu:local, up to 1 node"
    assert complete(launching, "launch run digits --priority ") == ["low", "normal", "high"]


RECORD = DatasetRecord(
    schema=1,
    name="digits",
    version=1,
    digest="0" * 64,
    files=1,
    bytes=1,
    created="2026-01-01T00:00:00Z",
)
LISTED = (
    "<R><Blobs><Blob><Name>_datasets/digits/1.json</Name><Properties><Etag>e</Etag>"
    "<Content-Length>9</Content-Length></Properties></Blob></Blobs><NextMarker /></R>"
)


def put_store(launching, port, *, engine="local"):
    """Have the environment name a store on a port, local where the engine is."""
    folder = launching.folder / "storage"
    folder.mkdir()
    (folder / "account.key").write_text("a2V5")
    name_server(folder, port=port)
    storage = msgspec.structs.replace(
        launching.environment.storage,
        blob_endpoint=f"http://127.0.0.1:{port}/test",
        folder=str(folder) if engine == "local" else None,
    )
    changed = msgspec.structs.replace(launching.environment, engine=engine, storage=storage)
    launching.write_environment(changed)
    return f"launch data pull --env {launching.env_file} "


@pytest.mark.parametrize(
    ("engine", "offered"), [("local", ["digits", "digits@1"]), ("azureml", [])]
)
def test_datasets_of_a_local_store_are_offered_and_azure_is_not_asked(launching, engine, offered):
    def say(asked):
        if "comp=list" in asked.target:
            return reply(200, LISTED.encode())
        return reply(200, msgspec.json.encode(RECORD))

    with scripted_server(say) as server:
        assert complete(launching, put_store(launching, server.port, engine=engine)) == offered
        assert bool(server.num_connections) is bool(offered)


def test_a_store_that_hangs_is_not_waited_for(launching):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        line = put_store(launching, silent.getsockname()[1])
        began = time.monotonic()
        assert complete(launching, line) == []
        # The bound is 2 s; unanswered requests would be tried for minutes.
        assert time.monotonic() - began < 30


def test_keys_of_a_job_are_offered_for_set(launching):
    assert complete(launching, "launch run digits --set li") == ["limits="]


def test_files_are_offered_where_a_file_belongs(launching):
    assert complete(launching, "launch ls --env env") == ["environment.json"]
    assert complete(launching, "launch ls --limit ") == []


@pytest.mark.parametrize(
    "line",
    [
        "launch show --env /nowhere.json ",
        "launch run /nowhere/",
        "launch run --cluster x --env ",
        "launch show --env /nowhere.json --nonsense 2",
    ],
)
def test_where_nothing_can_be_known_nothing_is_said(launching, line):
    (launching.folder / "environment.json").unlink()
    assert complete(launching, line, PATH="") == []


def test_a_line_that_begins_with_no_verb_is_offered_the_verbs(launching):
    for line in ("launch nonsense ", "launch "):
        assert complete(launching, line) == list(VERBS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(launching, shell):
    typed = launching.type_bare("completion", shell)
    assert (typed.code, typed.err) == (0, "")
    assert "_ARGCOMPLETE" in typed.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=typed.out, text=True, check=True)


def test_bash_completes_after_the_one_line(launching):
    run = launching.add_run()
    for line, expected in (
        ("launch ca", ["cancel"]),
        (f"launch logs --env {launching.env_file} 2", [run]),
    ):
        done = subprocess.run(
            ["/bin/bash", "--norc", "-c", PRESS_TAB, "bash", line],
            env={**os.environ, "PATH": f"{LAUNCH.parent}:{os.environ['PATH']}"},
            cwd=launching.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        assert (done.stdout.split(), done.stderr) == (expected, "")
