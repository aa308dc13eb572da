"""Pulumi comes from PATH, the cache, the official release, or Go modules."""

import gc
import hashlib
import io
import os
import socket
import tarfile
import threading
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure
from tests.busy import Bound
from tools import install_pulumi
from tools.phases import Phases
from tools.project import Project

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path):
    return Project(root=ROOT, cache=tmp_path / "cache")


@pytest.fixture
def phases():
    return Phases(io.StringIO(), environ={})


def program(folder, version, *, host=True):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pulumi").write_text(f"#!/bin/sh\necho {version}\n")
    (folder / "pulumi").chmod(0o755)
    if host:
        (folder / "pulumi-language-python").write_text("")
    return folder


@pytest.mark.parametrize(
    ("version", "host", "found"),
    [
        ("v3.250.0", True, True),
        ("v3.300.1", True, True),
        ("v4.0.0", True, True),
        ("v3.249.9", True, False),
        ("v3.250.0", False, False),
        ("nonsense", True, False),
    ],
)
def test_a_pulumi_on_path_is_taken_when_new_enough_and_whole(
    project, tmp_path, monkeypatch, version, host, found
):
    folder = program(tmp_path / "bin", version, host=host)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.defpath}")
    assert install_pulumi.find_installed(project) == (folder if found else None)


def test_a_link_on_path_leads_to_the_folder_with_the_language_host(project, tmp_path, monkeypatch):
    real = program(tmp_path / "opt", "v3.260.0")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pulumi").symlink_to(real / "pulumi")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.defpath}")
    assert install_pulumi.find_installed(project) == real


def test_our_own_wrapper_is_not_taken_for_an_installed_pulumi(tmp_path, monkeypatch):
    project = Project(root=tmp_path, cache=tmp_path / "cache")
    folder = program(tmp_path / ".venv" / "bin", "v3.260.0")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.defpath}")
    assert install_pulumi.find_installed(project) is None


def archive():
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name in ("pulumi", "pulumi-language-python"):
            entry = tarfile.TarInfo(f"pulumi/{name}")
            entry.mode, entry.size = 0o755, len(name)
            tar.addfile(entry, io.BytesIO(name.encode()))
    return data.getvalue()


@pytest.fixture
def release(monkeypatch):
    """A release server; gives the URL pattern, pinned to what it serves."""
    content = archive()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path.endswith(".tar.gz") else 404)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    pins = dict.fromkeys(install_pulumi.RELEASE_SHA256, hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(install_pulumi, "RELEASE_SHA256", pins)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/pulumi-v{{version}}-linux-{{arch}}.tar.gz"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_official_release_is_unpacked_into_the_cache(project, phases, release):
    assert install_pulumi.fetch_release(project, phases, url=release) is None
    folder = install_pulumi.release_folder(project)
    assert sorted(path.name for path in folder.iterdir()) == ["pulumi", "pulumi-language-python"]
    assert (folder / "pulumi").read_text() == "pulumi"
    assert os.access(folder / "pulumi", os.X_OK)
    assert install_pulumi.find_kept(project) == folder
    leftovers = {path.name for path in folder.parent.iterdir()} - {folder.name}
    assert leftovers == {f"{folder.name}.lock"}


def test_what_another_set_up_has_fetched_meanwhile_is_neither_fetched_again_nor_removed(
    project, phases, monkeypatch
):
    folder = install_pulumi.release_folder(project)

    @contextmanager
    def behind_another(*_, **__):
        program(folder, "v3.255.0")
        yield

    monkeypatch.setattr(install_pulumi, "exclusive", behind_another)
    assert install_pulumi.fetch_release(project, phases, url="http://127.0.0.1:9/x") is None
    assert install_pulumi.find_kept(project) == folder


def test_a_release_other_than_the_pinned_one_is_refused(project, phases, release, monkeypatch):
    monkeypatch.setattr(
        install_pulumi, "RELEASE_SHA256", dict.fromkeys(install_pulumi.RELEASE_SHA256, "0" * 64)
    )
    problem = install_pulumi.fetch_release(project, phases, url=release)
    assert problem is not None
    assert problem.endswith("not the pinned one")
    assert install_pulumi.find_kept(project) is None


def test_an_error_of_the_server_is_named(project, phases, release):
    problem = install_pulumi.fetch_release(project, phases, url=release.replace(".tar.gz", ""))
    assert problem == "Not Found"


def test_a_refused_connection_is_named(project, phases):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        problem = install_pulumi.fetch_release(project, phases, url=f"http://127.0.0.1:{port}/x")
    assert problem == "[Errno 111] Connection refused"


# http.client leaves the socket of an answer that timed out to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_silent_server_costs_seconds(project, phases, monkeypatch):
    monkeypatch.setattr(install_pulumi, "ANSWER_S", 0.3)
    monkeypatch.setattr(install_pulumi, "STALL_S", 1)
    before = set(threading.enumerate())
    bound = Bound(10)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        assert install_pulumi.fetch_release(project, phases, url=url) == "no answer within 0.3 s"
        bound.check()
        for thread in set(threading.enumerate()) - before:
            thread.join()
        gc.collect()


def test_without_go_the_error_says_what_to_install(project, phases, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(install_pulumi, "RELEASE_URL", "http://127.0.0.1:9/{version}{arch}")
    monkeypatch.setattr(
        install_pulumi,
        "fetch_release",
        partial(install_pulumi.fetch_release, url="http://127.0.0.1:9/x"),
    )
    with pytest.raises(EnvironmentFailure) as caught:
        install_pulumi.ensure_pulumi(project, phases)
    assert caught.value.message == "Pulumi has to be compiled, and Go is not on PATH"
    assert caught.value.hint == (
        "install Go 1.25 or newer, or Pulumi 3.250 or newer, and try again"
    )


def test_the_build_is_keyed_by_the_pins(project, tmp_path):
    copy = Project(root=tmp_path / "clone", cache=project.cache)
    for part in ("cli", "host"):
        folder = copy.root / "tools" / "pulumi" / part
        folder.mkdir(parents=True)
        for name in ("go.mod", "go.sum"):
            (folder / name).write_bytes((ROOT / "tools" / "pulumi" / part / name).read_bytes())
    assert install_pulumi.build_folder(copy) == install_pulumi.build_folder(project)
    with (copy.root / "tools" / "pulumi" / "host" / "go.sum").open("a") as file:
        file.write("\n")
    assert install_pulumi.build_folder(copy) != install_pulumi.build_folder(project)


def test_the_versions_come_from_the_go_mod_files():
    modules = ROOT / "tools" / "pulumi"
    assert install_pulumi.pinned_version(modules / "cli" / "go.mod") == "v3.250.0"
    assert install_pulumi.pinned_version(modules / "host" / "go.mod") == "v3.78.0"
