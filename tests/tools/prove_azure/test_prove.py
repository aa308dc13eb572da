"""What the proof decides without Azure: options, costs, verdicts, the report and its page."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tests.fakes.one_azure import azure_cli
from tests.fakes.one_azure.proof import Proof
from tools.prove_azure import pages
from tools.prove_azure.cost import Prices, estimate
from tools.prove_azure.record import Record, StepRecord
from tools.prove_azure.report import scrub, write_json, write_markdown
from tools.prove_azure.stack_steps import PROVIDERS
from tools.prove_azure.steps import PRIVATE, PUBLIC
from tools.prove_azure.unknowns import BY_ID, find_denied

ROOT = Path(__file__).parents[3]


def test_the_page_has_the_tables_of_the_code() -> None:
    page = pages.PAGE.read_text(encoding="utf-8")
    assert pages.rewrite(page) == page, "python -m tools.prove_azure.pages"


def test_every_step_settles_what_is_listed_and_every_row_is_settled_by_one() -> None:
    settled = {each for step in (*PUBLIC, *PRIVATE) for each in step.settles}
    assert settled == BY_ID.keys()


def test_page_registers_each_provider_that_the_stacks_declare_and_the_proof_looks_for() -> None:
    """The page has the command that a person types; the golden has what prod declares."""
    page = (ROOT / "docs" / "azure.md").read_text(encoding="utf-8")
    names = re.search(r"for provider in ([\w \\\n]+); do", page)
    assert names is not None
    registered = {f"Microsoft.{each}" for each in names[1].replace("\\", "").split()}
    assert registered == PROVIDERS == set(azure_cli.PROVIDERS)
    declared = (ROOT / "tests" / "infra" / "cloud_expected" / "urns_prod.txt").read_text()
    modules = set(re.findall(r"azure-native:(\w+):", declared))
    assert len(modules) > 10
    # Two modules of Pulumi's are of other names; every subscription has Microsoft.Resources.
    of = {"applicationinsights": "insights", "monitor": "insights", "privatedns": "network"}
    needed = {of.get(each, each) for each in modules - {"resources"}}
    assert needed <= {each.removeprefix("Microsoft.").lower() for each in registered}


@pytest.mark.parametrize(
    ("text", "among", "expected"),
    [
        ('Code="RequestDisallowedByAzure" Message="..."', (), "U1"),
        ("The query parameter underlyingResourceAction is required.", (), "U6"),
        ("Access to workspace was denied based on workspace private link configuration", (), "U5"),
        ("error: no space left on device", (), None),
    ],
)
def test_words_deny_an_assumption(text: str, among: tuple[str, ...], expected: str | None) -> None:
    found = find_denied(text, among)
    assert (found.id if found else None) == expected


def test_a_report_holds_nothing_that_others_should_not_read() -> None:
    guid = "5b1c7d1e-0000-4000-8000-00000000a2ee"
    told = (
        f"/subscriptions/{guid}/x ada@example.com 20.30.40.50 10.1.2.3 "
        "https://a.blob.core.windows.net/b?sv=2023&sig=abc%3D Bearer abc.def AccountKey=x;y"
    )
    assert scrub(told) == (
        "/subscriptions/5b1c7d1e-.../x MAIL ADDRESS 10.1.2.3 "
        "https://a.blob.core.windows.net/b?***&*** *** ***;y"
    )


def test_a_report_stays_json_whatever_is_taken_out() -> None:
    record = Record(stack="dev-prove", location="swedencentral")
    record.denies("U1", "up", '{"url": "https://a/b?sig=abc"}\nAuthorization: Bearer abc')
    told = msgspec.json.decode(write_json(record, PUBLIC))
    assert told["unknowns"][0]["words"] == '{"url": "https://a/b?***"}\nAuthorization: ***'


def test_the_page_of_a_report_holds_no_more() -> None:
    record = Record(stack="dev-prove", location="swedencentral")
    record.denies("U1", "up", "ada@example.com is denied")
    record.steps["up"] = StepRecord(outcome="failed", seconds=3, words="GET https://a/b?sig=abc")
    text = write_markdown(record, PUBLIC, "1.0")
    assert ("    MAIL is denied" in text, "    GET https://a/b?***" in text) == (True, True)
    assert [secret for secret in ("ada@", "abc") if secret in text] == []


def test_a_report_says_first_what_does_not_hold_and_what_no_assumption_explains() -> None:
    record = Record(stack="dev-prove", location="swedencentral", spent=1.234)
    record.holds("U34", "look")
    record.denies("U1", "up", "RequestDisallowedByAzure")
    record.steps["up"] = StepRecord(outcome="failed", seconds=3, words="RequestDisallowedByAzure")
    record.steps["hello"] = StepRecord(outcome="failed", seconds=2, words="no | disk")
    text = write_markdown(record, PUBLIC, "1.0")
    head = text.partition("## Held")[0]
    assert "1 assumptions held, 1 did not" in head
    assert "### U1" in head
    unexplained = head.partition("## Failed, and no assumption of the list tells why\n\n")[2]
    assert unexplained == "`hello`:\n\n    no | disk\n\n\n"
    assert "| hello | failed | 2 | no / disk |" in text
    told = msgspec.json.decode(write_json(record, PUBLIC))
    assert told["spent_usd_at_most"] == 1.23
    assert told["unknowns"][0] == {
        "id": "U1",
        "verdict": "denied",
        "step": "up",
        "words": "RequestDisallowedByAzure",
    }


def test_the_whole_is_estimated_below_the_limit() -> None:
    prices = Prices(node=0.30, idle=0.20)
    for steps in (PUBLIC, PRIVATE):
        assert 0.1 < estimate(prices, [(each.minutes, each.node_minutes) for each in steps]) < 5


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--owner", ""], "no mail address"),
        (["--group", ""], "no group"),
        (["--address", "here"], "`here` is no address"),
        (["--only", "never"], "no step `never`"),
        (["--location", "nowhere"], "price of Standard_D4ds_v4 in nowhere is unknown"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_made(
    proof: Proof, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert proof.prove(*words) in {2, 3}
    assert told in capsys.readouterr().err
    assert not (proof.folder / "record.json").exists()
