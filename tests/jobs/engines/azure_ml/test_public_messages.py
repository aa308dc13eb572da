"""Azure ML's own words, as users have quoted them in public (tests/golden/azure_messages), as ours."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from jobs.engines.azure_ml.states import Cause, judge, why_it_waits

MESSAGES = Path(__file__).parents[3] / "golden" / "azure_messages"


class Quoted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Azure answered, who quoted it, and what we say of it."""

    source: str
    code: str
    message: str
    reason: str
    cause: Cause = "unknown"


def read(name: str) -> list[Quoted]:
    return msgspec.convert(yaml.safe_load((MESSAGES / name).read_text()), list[Quoted])


@pytest.mark.parametrize("quoted", read("jobs.yaml"), ids=lambda each: each.message[:60])
def test_a_failure_that_was_quoted_has_its_cause(quoted):
    standing = judge("Failed", error={"error": {"code": quoted.code, "message": quoted.message}})
    assert (standing.cause, standing.reason) == (quoted.cause, quoted.reason)


@pytest.mark.parametrize("quoted", read("clusters.yaml"), ids=lambda each: each.message[:60])
def test_a_cluster_without_nodes_says_why_in_the_words_that_were_quoted(quoted):
    error = {"error": {"code": quoted.code, "message": quoted.message}}
    assert why_it_waits("gpu", {"errors": [error]}, is_building=False) == quoted.reason


def test_each_message_names_where_it_stands():
    for quoted in [*read("jobs.yaml"), *read("clusters.yaml")]:
        assert quoted.source.startswith("https://github.com/")
