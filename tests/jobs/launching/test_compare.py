"""What parts two runs, where the command line's tests do not show it."""

import json
from typing import Any

import msgspec
import pytest

from jobs.contracts.spec import Plan, RunRecord
from jobs.launching.compare import changed_files, told_apart
from tests.fakes.gangs import make_spec


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("diff --git a/train.py b/train.py", "train.py"),
        ("diff --git a/src/a model.py b/src/a model.py", "src/a model.py"),
        (
            r'diff --git "a/gr\303\266\303\237e.py" "b/gr\303\266\303\237e.py"',
            r"gr\303\266\303\237e.py",
        ),
        ("diff --git train.py train.py", "train.py"),  # diff.noprefix
        ("diff --git i/train.py w/train.py", "train.py"),  # diff.mnemonicPrefix
        ("diff --git a/old.py b/new.py", "new.py"),
    ],
)
def test_changed_files_are_named_as_they_are_now(header, name):
    assert changed_files(f"{header}\nindex 1..2\n@@ -1 +1 @@\n-diff --git a/x b/x\n") == (name,)


def test_no_diff_changes_no_file():
    assert changed_files("") == ()


def record(*words: str, image_digest: str = "sha256:1", **changes: Any) -> RunRecord:
    spec = make_spec(["python", "train.py", *words], **changes)
    return RunRecord(
        schema=1,
        id="20261121-120000-0001",
        created="2026-11-21T12:00:00.000000Z",
        plan=Plan(engine="local", spec=spec, request=msgspec.Raw(b"{}")),
        git=None,
        image_digest=image_digest,
        environment_digest="",
    )


def test_runs_of_a_program_are_told_apart_by_arguments_then_the_rest_of_the_job():
    records = [
        record("--lr", "0.1", nodes=1),
        record("--lr", "0.2", "--amp", nodes=2, image_digest="sha256:2"),
    ]
    assert told_apart(records) == [
        {"lr": "0.1", "amp": "none", "nodes": "1"},
        {"lr": "0.2", "amp": "true", "nodes": "2"},
    ]


def test_runs_of_different_programs_are_told_apart_by_name():
    other = msgspec.structs.replace(
        record(), plan=Plan(engine="local", spec=make_spec(["x"]), request=msgspec.Raw(b"{}"))
    )
    named = record("--lr", "0.1", name="a"), record("--lr", "0.2", name="a"), other
    assert told_apart(named) == [
        {"name": "a", "lr": "0.1"},
        {"name": "a", "lr": "0.2"},
        {"name": "test"},
    ]
    assert told_apart([record(), other]) == [{"command": "python train.py"}, {"command": "x"}]


def test_what_follows_tells_runs_apart_where_nothing_else_does():
    records = [record(image_digest="sha256:1"), record(image_digest="sha256:2")]
    assert told_apart(records) == [{"image digest": f"sha256:{n}"} for n in (1, 2)]
    assert told_apart(records[:1]) == [{}]


def test_final_figures_stand_side_by_side_and_one_that_a_run_lacks_is_none(launching):
    runs = []
    for figures in ({"loss": (2.0, 0.5)}, {"loss": (2.0, 0.25), "accuracy": (0.9,)}):
        runs.append(launching.add_run())
        entry = {"ts": "2026-11-21T12:00:00.000000Z", "epoch": 1, "split": "train"}
        lines = [
            json.dumps({**entry, "step": step, "name": name, "value": value})
            for name, values in figures.items()
            for step, value in enumerate(values)
        ]
        path = launching.workspace / "runs" / runs[-1] / "metrics.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines))
    assert launching.type("diff", *runs, "--json").json()["metrics"] == [
        {"name": "train accuracy", "a": None, "b": 0.9},
        {"name": "train loss", "a": 0.5, "b": 0.25},
    ]
