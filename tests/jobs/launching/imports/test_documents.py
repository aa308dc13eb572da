"""Documents that cannot be read end in one error with its place, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.launching.imports.json_text import parse_json_text
from tests.jobs.launching.imports.generated import SCHEMAS

SECRET = "hunter2-secret"
JOB = '{"properties": {"customToolkitSettings": {"commandLine": "true"}MORE}}'


def job(more: str) -> str:
    """A document of a job with more in it."""
    return JOB.replace("MORE", more)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (job(f', "x": "{SECRET}",, '), "1:89"),
        (job(',\n "nodeCount": 1, "nodeCount": 2'), "2:18"),
        (f'{{"properties": {{"x": "{SECRET}}}', "1:22"),
        ("[" * 2000 + "]" * 2000, "1:65"),
        ('{"a":' * 2000 + "1" + "}" * 2000, "1:321"),
        ("", "1:1"),
        ("{} x", "1:4"),
        ('{"a": 01}', "1:7"),
        ('{"a": NaN}', "1:7"),
        ('{"a": "x\ny"}', "1:7"),
        ("{'a': 1}", "1:2"),
        (f"/* {SECRET}", "1:1"),
        (job(',\n"nodeCount": "two"'), "2:14"),
        (job(f',\n"nodeCount": ["{SECRET}"]'), "2:14"),
        (job(',\n"nodeCount": 1.5'), "2:14"),
        (job(',\n"environmentVariables": {"a": 1}'), "2:25"),
        (job(',\n"secrets": [7]'), "2:13"),
        (job(',\n"cluster": "nc6"'), "2:12"),
        (f'{{"properties": {{"customToolkitSettings": ["{SECRET}"]}}}}', "1:42"),
        ("[1, 2]", "1:1"),
        ('{"vmSize": "x", "clusterName": "y"}', "1:1"),
        ('{"properties": {"nodeTypes": []}, "name": "c", "nodes": []}', "1:1"),
        ('{"vmSize": "x", "virtualMachineConfiguration": {}, "targetDedicatedNodes": 2}', "1:1"),
        (
            '{"computeType": "AmlCompute", "properties": {"vmSize": "x", "scaleSettings": {}}}',
            "1:1",
        ),
        ((SCHEMAS / "2018-05-01-job.json").read_text(encoding="utf-8"), "1:1"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_without_its_text(
    launching: Any, text: str, place: str
) -> None:
    (launching.folder / "job.json").write_text(text)
    typed = launching.type_bare("import", "job.json", "--into", "made")
    assert (typed.code, typed.out) == (2, "")
    assert typed.err.startswith(f"error: job.json:{place}: "), typed.err
    assert typed.err.count("error:") == 1
    assert SECRET not in typed.err
    assert not (launching.folder / "made").exists()


def test_files_that_are_too_large_or_no_text_are_named(launching: Any) -> None:
    file = launching.folder / "job.json"
    for content, said in ((b"\xff", ":1:1: the file is not UTF-8"), (None, "more than 64 MiB")):
        with file.open("wb") as writing:
            writing.write(content or b"")
            writing.truncate(len(content) if content else (64 << 20) + 1)
        typed = launching.type_bare("import", "job.json")
        assert (typed.code, said in typed.err) == (2, True), typed.err


def test_what_people_write_into_json_is_accepted_and_said(launching: Any) -> None:
    text = "\ufeff" + job(",").replace("{", "{ // a\n", 1) + "/* b */"
    (launching.folder / "job.json").write_text(text, encoding="utf-8")
    typed = launching.type_bare("import", "job.json", "--into", "made", "--json")
    assert typed.code == 0, typed.err
    assert "a byte order mark, comments, trailing commas" in typed.err


def test_a_folder_gives_its_documents_and_passes_other_json_over(launching: Any) -> None:
    folder = launching.folder / "project"
    (folder / "deep").mkdir(parents=True)
    (folder / "package.json").write_text('{"name": "x"}')
    (folder / "deep" / "train.json").write_text(job(""))
    typed = launching.type_bare("import", "project", "--into", "made", "--json")
    assert typed.code == 0, typed.err
    assert json.loads(typed.out)["files"] == ["made/train.yaml", "made/README.md"]
    typed = launching.type_bare("import", str(folder / "package.json"))
    assert typed.code == 2
    typed = launching.type_bare("import", "project", "--into", "made")
    assert (typed.code, "exists" in typed.err) == (2, True)


def test_exit_codes_tell_refusals(launching: Any) -> None:
    path = launching.folder / "job.json"
    for more, code in (("", 0), (', "unknown": 1', 3), (', "nothing": null', 0)):
        path.write_text(job(more))
        typed = launching.type_bare(
            "import", "job.json", "--into", f"made{code}{len(more)}", "--json"
        )
        assert typed.code == code
        entries = json.loads(typed.out)["entries"]
        assert [each["outcome"] for each in entries[:1]] == ["converted"]
        assert [set(each) for each in entries[1:]] == (
            [{"key", "outcome", "file", "reason"}] if code else []
        )


def test_numbers_and_escapes_are_read_as_json_has_them(tmp_path: Path) -> None:
    del tmp_path
    root = parse_json_text('{"a": [-1.5e3, 12, "\\u00e9\\n\\ud83d\\ude00", true, null]}', "x").root
    items = root.value["a"].node.value  # type: ignore[index,union-attr]
    assert [each.value for each in items] == [-1500.0, 12, "é\n😀", True, None]


@pytest.mark.parametrize(("link", "aim"), [("job.yaml", "beside"), ("data", "elsewhere")])
def test_a_link_in_the_folder_leads_no_file_out_of_it(launching: Any, link: str, aim: str) -> None:
    document = {
        "nodeCount": 1,
        "customToolkitSettings": {"commandLine": "ls $AZ_BATCHAI_JOB_MOUNT_ROOT/share"},
    }
    (launching.folder / "job.json").write_text(json.dumps(document))
    (launching.folder / "made").mkdir()
    (launching.folder / "elsewhere").mkdir()
    (launching.folder / "made" / link).symlink_to(launching.folder / aim)
    typed = launching.type_bare("import", "job.json", "--into", "made")
    assert (typed.code, typed.err.count("error:")) == (2, 1)
    assert [each.name for each in (launching.folder / "made").iterdir()] == [link]
    assert not (launching.folder / "beside").exists()
    assert list((launching.folder / "elsewhere").iterdir()) == []
