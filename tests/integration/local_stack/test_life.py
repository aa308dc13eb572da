"""One local stack through its life: refused, killed, repaired, used, changed, destroyed, up again.

Each `up` takes seconds, so that the tests go on where the ones before have left it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import jsonschema
import msgspec
import pytest

from infra.local.azurite_server import KEY_FILE, LOG_FILE
from jobs.contracts.spec import Environment
from jobs.host.cache import cache_root
from tests.integration.local_stack.conftest import LocalProject, fresh_project
from tests.integration.local_stack.kills import kill_up

REPO = Path(__file__).parents[3]
LOOPBACK = "0100007F"  # 127.0.0.1 as /proc/net/tcp writes it
BLOB = b"some data"
JOB = """\
name: says
image: pytorch
launcher: none
script: train.py
processes_per_node: 1
"""
# Where torch makes a folder for compiled code as soon as an optimizer steps.
TRAIN = """\
import os
print(os.environ["TORCHINDUCTOR_CACHE_DIR"])
"""


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, new_port: Callable[[], int]
) -> Iterator[LocalProject]:
    """One project for all tests here, not yet up."""
    with fresh_project(tmp_path_factory.mktemp("life"), new_port()) as made:
        yield made


@pytest.fixture(scope="module")
def repaired(project: LocalProject) -> str:
    """What `launch env repair` said of a first `up` that was killed; then it is up."""
    assert kill_up(project, "group", None)
    said = project.launch("env", "repair", "-s", "local").stdout
    project.log = project.up()
    return said


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An empty home and an empty folder for temporary files."""
    root = tmp_path_factory.mktemp("elsewhere")
    folders = [root / name for name in ("home", "temporary")]
    for folder in folders:
        folder.mkdir()
    return folders


@pytest.fixture
def standing(project: LocalProject, repaired: str, elsewhere: list[Path]) -> LocalProject:
    """The stack that is up, and all that is typed in an empty home."""
    home, temporary = map(str, elsewhere)
    cache = str(cache_root(os.environ).parent)
    project.variables |= {"HOME": home, "TMPDIR": temporary, "XDG_CACHE_HOME": cache}
    return project


def test_every_wrong_setting_is_named_at_once_and_nothing_is_created(project: LocalProject) -> None:
    good = project.settings
    project.settings = {
        "engine": "loca",
        "storage": {"port": 99999, "fodler": "data/storage"},
        "workspace": {"folder": 3},
        "clusters": {"cpu": {"nodes": "two", "processes_per_node": 0}},
        "colour": "red",
    }
    project.write_settings()
    said = project.pulumi("up", "-s", "local", "--yes", "--skip-preview", check=False)

    assert said.returncode != 0
    for line in (
        "Pulumi.local.yaml: 8 wrong settings, nothing was changed",
        'trainyard:engine: "loca" is not one of: azureml, local',
        "trainyard:storage.port: 99999 is not between 1024 and 65535",
        "trainyard:storage.folder: is missing",
        "trainyard:storage.fodler: unknown key, did you mean `folder`?",
        "trainyard:workspace.folder: 3 is not text",
        'trainyard:clusters.cpu.nodes: "two" is not a whole number',
        "trainyard:clusters.cpu.processes_per_node: 0 is not between 1 and 256",
        "trainyard:colour: unknown key",
    ):
        assert line in said.stdout
    assert "Traceback" not in said.stdout
    assert not (project.root / "data").exists()

    # The next test's `up` is the good one.
    project.settings = good


def test_a_killed_up_is_mended_by_one_repair_and_one_up(
    project: LocalProject, repaired: str
) -> None:
    # A kill that met no lock would prove nothing.
    assert "removed the lock" in repaired
    assert project.is_healthy(), project.log
    assert project.plugins() == []
    store = project.resources()["local-storage"]["outputs"]
    assert (store["port"], store["folder"]) == (
        project.settings["storage"]["port"],
        str(project.storage),
    )
    assert set(project.resources()) >= {"trainyard-local", "local", "cpu"}
    again = project.launch("env", "repair", "-s", "local")
    assert again.stdout == "stack `local` needs no repair\n"


def test_the_real_output_keeps_the_contract_of_the_other_side(standing: LocalProject) -> None:
    output = standing.pulumi("stack", "output", "environment", "--json", "-s", "local").stdout

    schema = json.loads((REPO / "docs/schemas/environment-1.json").read_text())
    jsonschema.validate(json.loads(output), schema)
    environment = msgspec.json.decode(output, type=Environment)
    port = standing.settings["storage"]["port"]
    assert environment.storage.blob_endpoint == f"http://127.0.0.1:{port}/trainyard"
    assert environment.storage.folder == str(standing.storage)
    assert environment.workspace.endpoint == standing.workspace.as_uri()
    assert environment.clusters["cpu"].max_nodes == 2


def test_launch_reads_the_stack_once_then_its_cache(standing: LocalProject) -> None:
    first = standing.launch("env", "show", "--json").stdout
    wrapper = standing.root / ".venv" / "bin" / "pulumi"
    hidden = wrapper.rename(wrapper.with_name("hidden"))
    try:
        again = standing.launch("env", "show", "--json").stdout
    finally:
        hidden.rename(wrapper)
    assert json.loads(first)["stack"] == "local"
    assert again == first


def test_an_exported_environment_needs_no_project(standing: LocalProject, tmp_path: Path) -> None:
    file = tmp_path / "environment.json"
    standing.launch("env", "export", "--output", str(file))

    shown = standing.launch("env", "show", "--json", "--env", str(file)).stdout

    assert json.loads(shown) == json.loads(file.read_text())
    checked = json.loads(standing.launch("env", "check", "--json", "--env", str(file)).stdout)
    assert [(each["part"], each["ok"]) for each in checked["parts"]] == [
        ("storage", True),
        ("workspace", True),
        ("cluster cpu", True),
    ]


def test_azurite_listens_on_loopback_only(standing: LocalProject) -> None:
    pid = standing.server().pid
    sockets: set[str] = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # a connection that was closed meanwhile
            sockets.add(str(fd.readlink()).removeprefix("socket:[").removesuffix("]"))
    listening: list[tuple[str, str]] = []
    for family in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in sockets and (fields[3] == "0A" or family.startswith("udp")):
                address, _, port = fields[1].partition(":")
                listening.append((address, port))
    assert listening == [(LOOPBACK, f"{standing.settings['storage']['port']:04X}")]


def test_the_key_is_in_its_file_and_in_azurites_environment_only(standing: LocalProject) -> None:
    key_file = standing.storage / KEY_FILE
    key = key_file.read_bytes()
    assert len(key) == 88
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    standing.refresh()

    files = [path for path in standing.root.rglob("*") if path.is_file() and path != key_file]
    assert standing.state_file in files
    assert standing.storage / LOG_FILE in files
    assert [path for path in files if key in path.read_bytes()] == []
    assert key.decode() not in standing.log
    output = standing.pulumi("stack", "output", "--json", "--show-secrets", "-s", "local").stdout
    assert key.decode() not in output
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert [line for line in lines if key in line] == []


def test_azurite_sends_no_telemetry_and_lives_in_a_session_of_its_own(
    standing: LocalProject,
) -> None:
    pid = standing.server().pid
    argv = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    assert "--disableTelemetry" in argv
    session = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    assert session == pid


def test_clusters_come_and_go_without_touching_the_store(standing: LocalProject) -> None:
    before = standing.server()

    standing.settings["clusters"]["one"] = {"nodes": 1, "processes_per_node": 1}
    standing.settings["clusters"]["cpu"]["nodes"] = 3
    assert "+ 1 created" in standing.up()
    shown = standing.launch("env", "show", "--json").stdout
    clusters = msgspec.json.decode(shown, type=Environment).clusters
    assert {name: each.max_nodes for name, each in clusters.items()} == {"cpu": 3, "one": 1}

    del standing.settings["clusters"]["one"]
    assert "- 1 deleted" in standing.up()
    assert standing.server() == before


def test_a_run_keeps_compiled_code_in_the_cache(standing: LocalProject) -> None:
    (standing.root / "job.yaml").write_text(JOB)
    (standing.root / "train.py").write_text(TRAIN)
    said = standing.launch("run", "job.yaml", "--yes").stdout
    assert said.count(f"{cache_root(os.environ)}/torchinductor\n") == 1


def test_destroy_ends_azurite_says_what_it_keeps_and_up_finds_it_again(
    standing: LocalProject,
) -> None:
    standing.open_blob().upload_blob(BLOB, overwrite=True)

    said = standing.destroy()

    assert f"kept: datasets in {standing.storage}, runs in {standing.workspace}" in said
    assert standing.azurites() == []
    assert standing.resources() == {}
    shown = standing.launch("env", "show", check=False)
    assert shown.returncode == 2
    assert "stack `local` is not up" in shown.stderr
    assert shown.stderr.endswith("up -s local\n")

    standing.up()
    assert standing.is_healthy()
    assert standing.open_blob().download_blob().readall() == BLOB


def test_ups_a_run_and_a_destroy_leave_nothing_outside_of_clone_and_cache(
    standing: LocalProject, elsewhere: list[Path]
) -> None:
    assert standing.is_healthy()
    assert [path for folder in elsewhere for path in folder.rglob("*")] == []
