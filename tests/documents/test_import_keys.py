"""docs/import.md says of every key what an import says, and has every key of the published schemas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jobs.launching.imports.draft import Choices
from jobs.launching.imports.importing import import_documents
from tests.documents.import_keys import PAGE, WRITE, with_keys
from tests.jobs.launching.imports.generated import SCHEMAS, schema_of


def test_the_page_says_what_an_import_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_keys(page), f"write it anew: {WRITE}"


def test_the_page_has_every_key_of_the_schemas() -> None:
    page = PAGE.read_text(encoding="utf-8")
    listed = set(
        re.findall(r"[A-Za-z]+", " ".join(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)))
    )
    published = {key for file in SCHEMAS.glob("*.json") for key in _scalars(schema_of(file.stem))}
    assert published - listed == set()


def test_before_becomes_after(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, after = (
        re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[0] for kind in ("json", "yaml")
    )
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").write_text("import horovod.torch")
    (tmp_path / "job.json").write_text(before)
    choices = Choices(code=tmp_path / "scripts")
    made = import_documents([tmp_path / "job.json"], tmp_path / "imported", choices)
    head, _, tail = after.partition("    ... # the variables and folders of Batch AI\n")
    assert made.files["job.yaml"].startswith(head)
    assert made.files["job.yaml"].endswith(tail)


def _scalars(value: Any, key: str = "") -> set[str]:
    """The names of all keys that hold a scalar."""
    if not isinstance(value, dict):
        return set()
    if key and value.get("type") in ("string", "integer", "boolean"):
        return {key}
    found: set[str] = set()
    for name, each in value.items():
        properties = each if name == "properties" and isinstance(each, dict) else {}
        for inner, described in properties.items():
            found |= _scalars(described, inner)
        if name in ("definitions", "items"):
            for described in each.values() if name == "definitions" else [each]:
                found |= _scalars(described)
    return found
