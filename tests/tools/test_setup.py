"""Set-up as a whole: several parts side by side, and failures that say what to do."""

import io
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from tests.busy import HANG_S, wait_until
from tools import install_uv
from tools.install_azurite import Azurite
from tools.install_uv import offer_uv, require_python, sync_environment, uv_version
from tools.phases import Phases
from tools.project import Project
from tools.setup import explain, wait_for, write_tools

ROOT = Path(__file__).parents[2]


@pytest.fixture
def out():
    return io.StringIO()


@pytest.fixture
def phases(out):
    return Phases(out, environ={})


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "a clone"
    (root / ".trainyard").mkdir(parents=True)
    return Project(root=root, cache=tmp_path / "cache")


def test_a_failure_is_explained_before_the_other_part_ends(out, phases):
    others_end = threading.Event()

    def fails():
        raise EnvironmentFailure("no disk", hint="buy one")

    def goes_on():
        said_before_the_end = others_end.wait(HANG_S)
        assert said_before_the_end
        return Path("done")

    def release_when_said():
        wait_until(lambda: "buy one" in out.getvalue())
        others_end.set()

    with ThreadPoolExecutor(3) as pool:
        parts = pool.submit(goes_on), pool.submit(fails)
        pool.submit(release_when_said)
        with pytest.raises(EnvironmentFailure, match="set-up is not complete"):
            wait_for(*parts, phases=phases)
    assert parts[0].result() == Path("done")
    assert out.getvalue() == "no disk\nhint: buy one\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LaunchError("what"), "what"),
        (LaunchError("what", hint="do"), "what\nhint: do"),
        (
            PermissionError(13, "Permission denied", "/x"),
            "Permission denied: /x\nhint: XDG_CACHE_HOME names the folder for the cache; "
            "it and the clone must be writable",
        ),
        (
            OSError(28, "No space left on device"),
            "No space left on device\nhint: a whole set-up takes about 9 GB; "
            "XDG_CACHE_HOME may name another disk",
        ),
        (
            OSError(5, "Input/output error"),
            "Input/output error\nhint: correct this and type the same again, it goes on",
        ),
    ],
)
def test_every_failure_says_what_to_do(error, said):
    assert explain(error) == said


def test_the_local_stack_finds_its_tools_in_a_file(project):
    azurite = Azurite(node=Path("/n/node"), azurite=Path("/a/main.js"))
    write_tools(project, azurite, Path("/p"))
    assert (project.root / ".trainyard" / "tools.json").read_text() == (
        '{\n  "node": "/n/node",\n  "azurite": "/a/main.js",\n  "pulumi": "/p/pulumi"\n}\n'
    )


@pytest.mark.parametrize("version", [(3, 10), (3, 13), (4, 0)])
def test_another_python_is_refused(version):
    with pytest.raises(EnvironmentFailure) as caught:
        require_python(version)
    assert caught.value.hint == "make setup PYTHON=python3.12"


def test_python_3_11_and_3_12_are_taken():
    require_python((3, 11))
    require_python((3, 12))


FAKE_UV = """\
#!/bin/sh
[ "$1" = --version ] && { echo "uv 0.13.9 (x)"; exit; }
echo "$@ in $PWD for $UV_PROJECT_ENVIRONMENT"
[ -e "$PWD/fail" ] && exit 2
mkdir -p .venv/bin && touch .venv/bin/python
"""


@pytest.fixture
def uv(project):
    return lay_uv(project)


def lay_uv(project):
    path = project.state / "uv" / "bin" / "uv"
    path.parent.mkdir(parents=True)
    path.write_text(FAKE_UV)
    path.chmod(0o755)
    return path


def test_a_uv_that_another_set_up_has_installed_meanwhile_is_taken(project, phases, monkeypatch):
    @contextmanager
    def behind_another(*_, **__):
        lay_uv(project)
        yield

    monkeypatch.setattr(install_uv, "exclusive", behind_another)
    monkeypatch.setattr(install_uv, "install_uv", lambda _: pytest.fail("installed again"))
    monkeypatch.setenv("PATH", "")
    assert install_uv.ensure_uv(project, phases) == project.state / "uv" / "bin" / "uv"


def test_the_version_of_uv_is_read(uv, tmp_path):
    assert uv_version(str(uv)) == (0, 13, 9)
    assert uv_version(str(tmp_path / "none")) == ()
    assert uv_version(None) == ()


def test_the_environment_is_synced_to_the_lock_with_this_python(project, uv, phases):
    sync_environment(project, uv, phases)
    said = project.state / "logs" / "uv-sync.log"
    line = (
        f"sync --locked --extra ui --python {sys.executable} in {project.root} for {project.venv}"
    )
    assert said.read_text().splitlines()[1] == line
    sync_environment(project, uv, phases)  # one that is there keeps the Python it has
    line = f"sync --locked --extra ui in {project.root} for {project.venv}"
    assert said.read_text().splitlines()[1] == line
    assert (project.venv / "bin" / "uv").resolve() == uv.resolve()


def test_an_environment_whose_sync_was_cut_short_is_laid_anew(project, uv, phases):
    (project.root / "fail").write_text("")
    project.venv.mkdir()
    (project.venv / "half").write_text("")
    with pytest.raises(EnvironmentFailure, match="uv sync failed"):
        sync_environment(project, uv, phases)
    (project.root / "fail").unlink()
    sync_environment(project, uv, phases)
    assert not (project.venv / "half").exists()
    (project.venv / "whole").write_text("")
    sync_environment(project, uv, phases)
    assert (project.venv / "whole").exists()


def test_a_uv_of_the_machine_is_not_linked_into_the_environment(project, uv):
    (project.venv / "bin").mkdir(parents=True)
    offer_uv(project, uv)
    offer_uv(project, Path("/usr/bin/uv"))
    assert not (project.venv / "bin" / "uv").exists()


def test_set_up_loads_nothing_that_a_bare_python_lacks():
    ours = "tools.demo, tools.setup, tests.environments.testbed"
    code = f"import {ours}, sys; print(*sys.modules, sep='\\n')"
    bare = [sys.executable, "-S", "-c", code]
    loaded = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ours = {name for name in loaded.split() if name.partition(".")[0] in {"tools", "jobs"}}
    assert "tools.setup" in ours
    outside = {name.partition(".")[0] for name in loaded.split()} - set(sys.stdlib_module_names)
    assert outside == {"tools", "jobs", "tests", "__main__"}
