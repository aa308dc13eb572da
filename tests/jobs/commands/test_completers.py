"""What the shell offers after Tab, and that it never sees an error."""

import os
import shutil
import socket
import subprocess

import msgspec
import pytest

from jobs.cli import VERBS
from jobs.datasets.records import DatasetRecord
from jobs.host.project import project_root
from jobs.jobfile.find import catalog_names
from tests.busy import Bound
from tests.fakes.local_server import name_server
from tests.fakes.scripted_server import answer as reply
from tests.fakes.scripted_server import scripted_server
from tests.shells import LAUNCH, answer_tab, ask_in_time, press_tab

# Typed in a shell of one's own: what Tab gives at the end of a line.
PRESSED_IN_BASH = """
eval "$(launch completion bash)"
COMP_WORDS=($1); [[ $1 != *' ' ]] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_launch_words launch 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""
# zsh's own `_arguments` works in its line editor only; it evaluates the choices so.
PRESSED_IN_ZSH = r"""
compdef() {}
_arguments() {
    local action=${1#*: :\(\(}
    eval ws\=\( "${action%\)\)}" \)
    print -l -- "${ws[@]%%:*}"
}
eval "$(launch completion zsh)"
words=(${(z)1}); [[ $1 != *' ' ]] || words+=("")
CURRENT=${#words}
_launch_completion
"""
PRESSED_IN_FISH = """
launch completion fish | source
complete --do-complete $argv[1]
"""
REAL_SHELLS = ["bash", "zsh", "fish"]
SHELLS = [*REAL_SHELLS, "powershell"]


def require_shell(shell):
    """Skip the test from here on where the shell itself cannot judge."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


def complete(launching, line, **variables):
    """The choices that are offered at the end of the line."""
    return [
        word for word in answer_tab(line, cwd=launching.folder, **variables).split("\n") if word
    ]


def described(launching, line):
    """The choices with a word about each."""
    return dict(
        row.split("\t") for row in answer_tab(line, "fish", cwd=launching.folder).splitlines()
    )


def test_verbs_are_offered(launching):
    assert press_tab("launch r", cwd=launching.folder) == "run\nrm\nrerun\nreport"
    assert complete(launching, "launch data p") == ["prepare", "pack", "push", "pull"]


def test_options_are_offered_once_a_dash_is_typed(launching):
    long = ["--limit", "--name", "--experiment", "--tag", "--state", "--since", "--all"]
    long += ["--json", "--stack", "--env", "--help"]
    assert complete(launching, "launch ls --") == long
    assert complete(launching, "launch --") == ["--version", "--debug", "--help"]


def test_the_datasets_that_can_be_made_and_the_formats_of_shards_are_offered(launching):
    made = ["digits", "mnist", "keras-mnist", "hymenoptera", "coco", "imagenet"]
    assert complete(launching, "launch data prepare ") == made
    assert complete(launching, "launch data synthesize i") == ["imagenet"]
    assert complete(launching, "launch data pack --format t") == ["tar", "tfrecord"]


@pytest.mark.parametrize("line", ["launch shell p", "launch image path p"])
def test_images_are_offered_where_their_python_is_wanted(launching, line):
    assert complete(launching, line) == ["pytorch"]


def test_jobs_of_the_catalog_and_job_files_are_offered(launching):
    launching.write_job("", "digest.yaml")
    launching.write_job("", "other.yml")
    launching.write_job("", "Pulumi.dev.yaml")
    (launching.folder / "sub").mkdir()
    launching.write_job("", "sub/job.yaml")
    launching.write_job("", "sub/train.py")
    launching.write_job("", "train.py")
    assert complete(launching, "launch run dig") == ["digits", "digits-ddp", "digest.yaml"]
    everything = [*catalog_names(), "digest.yaml", "other.yml", "train.py", "sub/"]
    assert complete(launching, "launch run ") == everything
    assert complete(launching, "launch plan sub/") == ["sub/job.yaml", "sub/train.py"]
    assert complete(launching, "launch init ") == ["train.py", "sub/"]
    assert complete(launching, "launch jobs mn") == ["mnist", "mnist-synthetic"]


def test_runs_are_offered_newest_first(launching):
    ids = [launching.add_run() for _ in range(3)]
    env = f"--env {launching.env_file}"
    assert complete(launching, f"launch logs {env} 2") == ids[::-1]
    assert complete(launching, f"launch show {env} ") == [*ids[::-1], "last"]
    assert complete(launching, f"launch cancel {env} {ids[0]} l") == ["last"]


def test_runs_are_offered_with_their_state(launching):
    run = launching.add_run(ends_as="failed")
    line = f"launch show --env {launching.env_file} "
    assert described(launching, line) == {run: "failed test", "last": f"failed test ({run})"}


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
    assert described(launching, line) == {"cpu": "local, up to 1 node"}
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
    "<BlobType>BlockBlob</BlobType><Content-Length>9</Content-Length></Properties></Blob></Blobs><NextMarker /></R>"
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
            return reply(200, LISTED.encode(), Content_Type="application/xml")
        content = msgspec.json.encode(RECORD)
        end = len(content)
        return reply(206, content, Content_Range=f"bytes 0-{end - 1}/{end}")

    with scripted_server(say) as server:
        assert complete(launching, put_store(launching, server.port, engine=engine)) == offered
        assert bool(server.num_connections) is bool(offered)


def test_a_store_that_hangs_is_not_waited_for(launching):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        line = put_store(launching, silent.getsockname()[1])
        bound = Bound(30)
        assert press_tab(line, cwd=launching.folder, is_once=True) == ""
        # The bound is 2 s; unanswered requests would be tried for minutes.
        bound.check()


def test_states_names_and_experiments_of_runs_are_offered(launching):
    launching.add_run(name="first")
    launching.add_run(name="second", experiment="sweep")
    line = f"launch ls --env {launching.env_file}"
    assert complete(launching, f"{line} --state p") == ["preparing", "preempted"]
    assert complete(launching, f"{line} --name ") == ["second", "first"]
    assert complete(launching, f"{line} --experiment ") == ["sweep", "first"]


def test_keys_of_a_job_are_offered_for_set(launching):
    assert complete(launching, "launch run digits --set li") == ["limits="]


def test_options_of_the_jobs_program_are_offered_for_set(launching):
    text = "name: x\nimage: pytorch\nmodule: trainer.pytorch.mnist\n"
    job = launching.write_job(text)
    for line in ("launch run mnist", f"launch plan {job} -s local"):
        assert complete(launching, f"{line} --set args.ep") == ["args.epochs="]
        devices = [f"args.device={name}" for name in ("auto", "cpu", "cuda")]
        assert complete(launching, f"{line} --set args.device=") == devices
    assert described(launching, "launch run mnist --set args.epo") == {
        "args.epochs=": "passes over the training set"
    }
    launching.write_job("name: x\nimage: pytorch\nscript: train.py\n", "own.yaml")
    assert complete(launching, "launch run own.yaml --set args.") == []


def test_where_a_file_belongs_the_shell_is_left_to_offer_its_own(launching):
    for line in ("launch ls --env env", "launch fetch --into ", "launch data push "):
        assert complete(launching, line) == []


def test_ranks_of_the_run_are_offered_but_those_that_are_typed(launching):
    run = launching.add_run(processes_per_node=2, parameter_servers=1)
    line = f"launch logs --env {launching.env_file} {run} --rank "
    ranks = ["0", "1", "2"]
    assert complete(launching, line) == ranks
    assert complete(launching, f"{line}0,") == [f"0,{each}" for each in ranks[1:]]


# Each would run `touch`, or end a quotation, if a shell took it for more than a word.
HOSTILE = [
    "$(touch ran).yaml",
    "`touch ran`.yaml",
    "\\\\$(touch ran).yaml",
    '\\\\";touch ran;".yaml',
]
HOSTILE += [
    "a;touch ran;.yaml",
    "';touch ran;'.yaml",
    "a b.yaml",
    "-x.yaml",
    "a\nb.yaml",
    "(e:touch ran:).yaml",
]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_file_whose_name_a_shell_would_run_is_not_offered(launching, shell):
    for name in HOSTILE:
        launching.write_job("", name)
    launching.write_job("", "plain-1.yaml")
    said = press_tab("launch run ", shell, cwd=launching.folder)
    assert "plain-1.yaml" in said
    assert "touch" not in said
    if shell in REAL_SHELLS:
        assert "plain-1.yaml" in pressed(launching, shell, "launch run ")
        assert not (launching.folder / "ran").exists()


@pytest.mark.parametrize("shell", REAL_SHELLS)
def test_what_another_wrote_about_a_choice_is_not_run(launching, shell):
    run = launching.add_run(name="x\\\\$(touch ran)\\\\\"`touch ran`';[/]")
    said = press_tab(f"launch show --env {launching.env_file} ", shell, cwd=launching.folder)
    assert run in said
    assert "$(" not in said
    assert run in pressed(launching, shell, f"launch show --env {launching.env_file} ")
    assert not (launching.folder / "ran").exists()


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


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_gets_its_script(launching, shell):
    typed = launching.type_bare("completion", shell)
    assert (typed.code, typed.err) == (0, "")
    assert f"_LAUNCH_COMPLETE{' = ' if shell == 'powershell' else '='}" in typed.out
    if shell in REAL_SHELLS:
        require_shell(shell)
        subprocess.run([shell, "-n"], input=typed.out, text=True, check=True)


@pytest.mark.parametrize(
    ("shell", "offered"),
    [
        ("bash", "nccl-check"),
        ("zsh", """_arguments '*: :(("nccl-check":"from the catalog"))'"""),
        ("fish", "nccl-check\tfrom the catalog"),
        ("powershell", "nccl-check:::from the catalog"),
    ],
)
def test_each_shell_is_answered_in_its_own_way(launching, shell, offered):
    assert press_tab("launch run ncc", shell, cwd=launching.folder) == offered


def test_an_instruction_other_than_to_complete_starts_nothing(launching):
    # That of typer which asks bash for its version.
    assert press_tab("launch ", cwd=launching.folder, _LAUNCH_COMPLETE="source_bash") == ""


def pressed(launching, shell, line):
    """What a real shell offers after the script of `launch completion` was read."""
    require_shell(shell)
    program = {"bash": PRESSED_IN_BASH, "zsh": PRESSED_IN_ZSH, "fish": PRESSED_IN_FISH}[shell]
    begin = {"bash": ["--norc", "-c"], "zsh": ["-f", "-c"], "fish": ["--no-config", "-c"]}[shell]
    name = [] if shell == "fish" else [shell]

    def offered():
        done = subprocess.run(
            [shell, *begin, program, *name, line],
            env={**os.environ, "PATH": f"{LAUNCH.parent}:{os.environ['PATH']}"},
            cwd=launching.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return [row.partition("\t")[0] for row in done.stdout.splitlines() if row]

    return ask_in_time(offered)


@pytest.mark.parametrize("shell", REAL_SHELLS)
def test_a_real_shell_completes_after_the_one_line(launching, shell):
    run = launching.add_run()
    assert pressed(launching, shell, "launch ca") == ["cancel"]
    assert pressed(launching, shell, f"launch logs --env {launching.env_file} 2") == [run]
