"""Set-up of tools that only tests need never fails."""

import pytest

from jobs.contracts.errors import EnvironmentFailure
from tests.environments import testbed


@pytest.fixture
def bare(monkeypatch):
    """A machine of Debian that has everything but what a test takes away."""
    monkeypatch.setattr(testbed, "PACKAGES", {"sh": "dash"})
    monkeypatch.setattr(testbed, "SERVERS", {})
    monkeypatch.setattr(testbed, "OF_SET_UP", ("pytorch", "tensorflow", "tensorflow-keras2"))
    monkeypatch.setattr(testbed, "is_debian", lambda: True)
    monkeypatch.setattr(testbed.os, "geteuid", lambda: 0)
    return monkeypatch


def test_where_nothing_is_missing_nothing_is_said(bare, capsys):
    assert testbed.main() == 0
    assert capsys.readouterr().out == ""


def test_only_packages_whose_program_is_missing_are_asked_for(bare):
    bare.setattr(
        testbed, "PACKAGES", {"sh": "dash", "no-such-program": "one", "nor-this": "another"}
    )
    assert testbed.missing_packages() == ["another", "one"]


def test_a_failed_installation_is_told_and_does_not_fail(bare, capsys):
    def install(project, packages):
        raise EnvironmentFailure("apt-get update failed")

    bare.setattr(testbed, "PACKAGES", {"no-such-program": "some-package"})
    bare.setattr(testbed, "install", install)
    assert testbed.main() == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "as root on Debian: apt-get install some-package, which only tests need"
    assert said[1].endswith("packages that only tests need FAILED")
    assert said[2:] == ["apt-get update failed", "the tests that need them will be skipped"]


def test_without_root_it_says_what_will_be_skipped(bare, capsys):
    bare.setattr(testbed, "PACKAGES", {"no-such-program": "some-package"})
    bare.setattr(testbed.os, "geteuid", lambda: 1000)
    assert testbed.main() == 0
    assert capsys.readouterr().out == (
        "some tests will be skipped for want of: some-package (apt-get install some-package)\n"
    )


def test_a_server_that_cannot_be_had_is_told_and_does_not_fail(bare, capsys):
    bare.setattr(testbed, "SERVERS", {("no-such-package-anywhere",): "usr/bin/no-such-server"})
    assert testbed.main() == 0
    said = capsys.readouterr().out
    assert "no-such-server, which only tests need FAILED" in said
    assert said.endswith("the tests that need no-such-server will be skipped\n")


def test_a_runtime_that_set_up_does_not_make_is_made_saying_so(bare, capsys):
    made = []

    def build_runtime(image, project, *, report):
        made.append(image)
        with report(f"{image} runtime"):
            pass

    bare.setattr(testbed, "OF_SET_UP", ("pytorch", "tensorflow-keras2"))
    bare.setattr(testbed, "describe", lambda image, project: {"built": False})
    bare.setattr(testbed, "build_runtime", build_runtime)
    assert testbed.main() == 0
    assert made == ["tensorflow"]
    said = capsys.readouterr().out.splitlines()
    assert said[0] == (
        "the tensorflow runtime, which neither set-up nor the demo needs (a few minutes)"
    )
    assert said[1].endswith("tensorflow runtime")


def test_a_runtime_that_fails_is_told_and_does_not_fail(bare, capsys):
    def build_runtime(image, project, *, report):
        raise EnvironmentFailure("installing requirements.txt failed")

    bare.setattr(testbed, "OF_SET_UP", ())
    bare.setattr(testbed, "describe", lambda image, project: {"built": image != "tensorflow"})
    bare.setattr(testbed, "build_runtime", build_runtime)
    assert testbed.main() == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "installing requirements.txt failed",
        "the tests that need it will be skipped",
    ]
