"""A stack that is up: usable by the SDK, stable, open to this machine only, and no key leaks."""

from __future__ import annotations

import json
import stat
from contextlib import suppress
from pathlib import Path

import jsonschema
import msgspec

from infra.local.azurite_server import KEY_FILE, LOG_FILE
from jobs.contracts.spec import Environment

REPO = Path(__file__).parents[3]
LOOPBACK = "0100007F"  # 127.0.0.1 as /proc/net/tcp writes it


def test_the_store_is_used_by_the_sdk_and_a_second_up_changes_nothing(standing):
    assert standing.is_healthy()
    blob = standing.open_blob()
    blob.upload_blob(b"some data")
    assert blob.download_blob().readall() == b"some data"
    assert "5 unchanged" in standing.up("--expect-no-changes")
    assert "5 unchanged" in standing.pulumi("preview", "-s", "local", "--expect-no-changes").stdout
    assert standing.is_healthy()


def test_the_real_output_keeps_the_contract_of_the_other_side(standing):
    output = standing.pulumi("stack", "output", "environment", "--json", "-s", "local").stdout

    schema = json.loads((REPO / "docs/schemas/environment-1.json").read_text())
    jsonschema.validate(json.loads(output), schema)
    environment = msgspec.json.decode(output, type=Environment)
    port = standing.settings["storage"]["port"]
    assert environment.storage.blob_endpoint == f"http://127.0.0.1:{port}/trainyard"
    assert environment.storage.folder == str(standing.storage)
    assert environment.workspace.endpoint == standing.workspace.as_uri()
    assert environment.clusters["cpu"].max_nodes == 2


def test_launch_reads_the_stack_once_then_its_cache(standing):
    first = standing.launch("env", "show", "--json").stdout
    wrapper = standing.root / ".venv" / "bin" / "pulumi"
    hidden = wrapper.rename(wrapper.with_name("hidden"))
    try:
        again = standing.launch("env", "show", "--json").stdout
    finally:
        hidden.rename(wrapper)
    assert json.loads(first)["stack"] == "local"
    assert again == first


def test_an_exported_environment_needs_no_project(standing, tmp_path):
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


def test_azurite_listens_on_loopback_only(standing):
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


def test_the_key_is_in_its_file_and_in_azurites_environment_only(standing):
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


def test_azurite_sends_no_telemetry_and_lives_in_a_session_of_its_own(standing):
    pid = standing.server().pid
    argv = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    assert "--disableTelemetry" in argv
    session = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    assert session == pid
