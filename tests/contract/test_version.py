"""Version and licence are the same wherever they are said."""

import re
import tomllib

from jobs.host.project import project_root

PROJECT = project_root()


def test_the_changelog_has_the_projects_version_and_dates_each():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    text = (PROJECT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert headings[1].startswith(f"[{project['version']}] - ")
    dated = r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d"
    assert [each for each in headings[1:] if not re.fullmatch(dated, each)] == []


def test_the_licence_is_the_one_that_the_package_names():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    text = (PROJECT / "LICENSE").read_text()
    assert text.split()[:5] == ["Apache", "License", "Version", "2.0,", "January"]
    assert "END OF TERMS AND CONDITIONS" in text
