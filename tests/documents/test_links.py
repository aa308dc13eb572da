"""The check of the documents: every kind of broken reference is named, sound ones are not."""

import pytest

from tests.documents.links import anchor_of, check_navigation, check_pages

SOUND = """\
# A page

[a heading](#what-it-costs-a-day), [another page](other.md#two), [a file](schemas/job.json)
![a picture](images/run.png) <img src="images/run.png"> [elsewhere](https://example.com/x.md)

`jobs/cli.py`, `jobs.cli`, `jobs.cli.main`, `images/<name>/`, `docs/adr/NNNN-title.md`, `images/NAME`
`[not a link](nowhere.md)` `test_cli` `jobs/cli.py:12`, as docs/other.md says

```console
$ python -m jobs.cli      # [no link](nowhere.md)
```

## What it costs, a day
"""


@pytest.fixture
def project(tmp_path):
    """A project with one page that has each kind of reference, all of them sound."""
    files = {
        "jobs/cli.py": "def main(): ...\n",
        "tests/jobs/test_cli.py": "",
        "docs/other.md": "# One\n\n## Two\n",
        "docs/schemas/job.json": "{}",
        "docs/images/run.png": "",
        "docs/page.md": SOUND,
        "zensical.toml": '[project]\nnav = [{ "A" = "page.md" }, { "B" = ["other.md"] }]\n',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_sound_pages_have_no_problem(project):
    assert list(check_pages(project)) == []
    assert list(check_navigation(project)) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[x](gone.md)", "no such file: gone.md"),
        ("![x](images/gone.png)", "no such file: images/gone.png"),
        ('<img src="gone.png">', "no such file: gone.png"),
        ("[x](#gone)", "no such heading: #gone"),
        ("[x](other.md#gone)", "no such heading: other.md#gone"),
        (
            "[x](../jobs/cli.py)",
            "the site has nothing outside of docs/, name the path instead: ../jobs/cli.py",
        ),
        ("[x](schemas)", "the site has no page for a folder: schemas"),
        ("`jobs/gone.py`", "no such path: jobs/gone.py"),
        ("as in docs/gone.md", "no such path: docs/gone.md"),
        ("`python -m jobs.gone`", "no such module: jobs.gone"),
        ("```sh\npython -m jobs.gone\n```", "no such module: jobs.gone"),
        ("`jobs.gone`", "no such module: jobs.gone"),
        ("`jobs.cli.gone`", "no such module: jobs.cli.gone"),
        ("`test_gone`", "no such test: test_gone"),
        ("`test_gone.py`", "no such test: test_gone.py"),
    ],
)
def test_a_broken_reference_is_named(project, text, problem):
    page = project / "docs" / "page.md"
    page.write_text(f"{SOUND}\n{text}\n", encoding="utf-8")
    assert list(check_pages(project)) == [f"docs/page.md: {problem}"]


def test_pages_outside_of_the_site_may_link_to_any_file(project):
    readme = project / "README.md"
    readme.write_text("[x](jobs/cli.py) [y](docs) [z](docs/other.md#two)\n", encoding="utf-8")
    assert list(check_pages(project)) == []
    readme.write_text("[x](jobs/gone.py)\n", encoding="utf-8")
    assert list(check_pages(project)) == ["README.md: no such file: jobs/gone.py"]


def test_pages_and_navigation_name_the_same(project):
    (project / "docs" / "new.md").write_text("# New\n", encoding="utf-8")
    (project / "zensical.toml").write_text(
        '[project]\nnav = [{ "A" = "page.md" }, "page.md", "gone.md", "other.md"]\n',
        encoding="utf-8",
    )
    assert list(check_navigation(project)) == [
        "zensical.toml: `nav` has no page new.md",
        "zensical.toml: `nav` names page.md twice",
        "zensical.toml: no such page: gone.md",
    ]


def test_anchors_are_named_as_github_names_them():
    assert anchor_of("What was tried, and what was not") == "what-was-tried-and-what-was-not"
    assert anchor_of("`launch run`: [a link](x.md)") == "launch-run-a-link"
