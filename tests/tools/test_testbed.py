"""What only tests need is a wish, never a demand."""

from jobs.errors import EnvironmentFailure
from tools import testbed


def test_only_packages_whose_program_is_missing_are_asked_for(monkeypatch):
    monkeypatch.setattr(
        testbed, "PACKAGES", {"sh": "dash", "no-such-program": "one", "nor-this": "another"}
    )
    assert testbed.missing_packages() == ["another", "one"]


def test_a_failed_installation_is_told_and_does_not_fail(monkeypatch, capsys):
    def install(project, packages):
        raise EnvironmentFailure("apt-get update failed")

    monkeypatch.setattr(testbed, "PACKAGES", {"no-such-program": "some-package"})
    monkeypatch.setattr(testbed.os, "geteuid", lambda: 0)
    monkeypatch.setattr(testbed, "install", install)
    monkeypatch.setattr(testbed.Path, "exists", lambda _: True)
    assert testbed.main() == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "as root on Debian: apt-get install some-package, which only tests need"
    assert said[1].endswith("packages that only tests need FAILED")
    assert said[2:] == ["apt-get update failed", "the tests that need them will be skipped"]


def test_without_root_it_says_what_will_be_skipped(monkeypatch, capsys):
    monkeypatch.setattr(testbed, "PACKAGES", {"no-such-program": "some-package"})
    monkeypatch.setattr(testbed.os, "geteuid", lambda: 1000)
    assert testbed.main() == 0
    assert capsys.readouterr().out == (
        "some tests will be skipped for want of: some-package (apt-get install some-package)\n"
    )
