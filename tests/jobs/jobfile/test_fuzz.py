"""Whatever bytes a job file has, `launch plan` ends with a plan or with one message and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.contracts.errors import NotFound
from jobs.contracts.spec import JobFile
from jobs.jobfile.find import CATALOG, catalog_names
from tests.fakes.launching import Launching

SEEDS = [(CATALOG / f"{name}.yaml").read_bytes() for name in catalog_names()]
SEEDS.append(b"name: a\nimage: b\nscript: train.py\ncode: .\nenv: {A: 1}\nlimits: {cost: 1}\n")
# What means something to YAML, to the job file or to who reads numbers.
TOKENS = [
    *(f"\n{key}: " for key in JobFile.__struct_fields__),
    *("\n", "\n  ", "  ", "\t", "- ", ": ", ", ", "[", "]", "{", "}", "&a ", "*a", "!x ", "!!int "),
    *(
        "<<: ",
        "? ",
        "| ",
        ">",
        "'",
        '"',
        "#",
        "%TAG ",
        "---\n",
        "...\n",
        "\\0",
        "\\ud800",
        "@",
        "`",
    ),
    *("null", "true", "on", "max", "gpu", "torch", "tensorflow", "1", "-1", "0x", "1e999", ".inf"),
    *(".nan", "9" * 40, "9" * 5000, "30m", "9" * 400 + "d", "8g", "~x/y", "/", "..", "a" * 300),
    *(
        "trainer.pytorch.mnist",
        "train.py",
        "digits@1",
        "RANK: 1",
        "\x00",
        "\x7f",
        "\u2028",
        "\ufeff",
    ),
]
SOUP = st.lists(st.sampled_from(TOKENS), max_size=40).map(lambda words: "".join(words).encode())


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A good job file in which pieces were cut out, doubled or replaced."""
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 8)))
        piece = draw(st.one_of(st.binary(max_size=4), st.sampled_from(TOKENS).map(str.encode)))
        text = text[:start] + piece + text[end:]
    return text


@settings(max_examples=150)
@given(st.one_of(st.binary(max_size=64), SOUP, spoilt()))
def test_any_bytes_are_a_plan_or_one_message(
    launching: Launching, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    def no_dataset(_: object, name: str) -> None:
        message = f"no dataset `{name}` in the store"
        raise NotFound(message, hint="launch data push")

    monkeypatch.setattr("jobs.launching.plan._version", no_dataset)  # there is no store
    Path("train.py").touch()
    Path("job.yaml").write_bytes(content)
    typed = launching.type("plan", "job.yaml", "--json")
    said = typed.err.encode("utf-8")
    if typed.code == 0:
        assert json.loads(typed.out)["spec"]["command"]
        return
    assert typed.out == ""
    assert said.count(b"error: ") == 1
    assert b"bug in launch" not in said
    # Besides a mistake: a cluster that is too small (3), a dataset that is not there (102).
    assert typed.code == 2 or (typed.code, said.count(b" asks for ")) == (3, 1) or typed.code == 102
