"""The answers to a validation that say something, and those that say nothing of a region."""

from __future__ import annotations

import pytest

from jobs.engines.azure_ml.client import Reply
from jobs.engines.azure_ml.declared import read_declared
from jobs.engines.azure_ml.offers import check_offers
from tests.jobs.engines.azure_ml.test_declared import preview_of

REFUSED = {"code": "RequestDisallowedByPolicy", "message": "Tag cost-center is missing."}


class Client:
    """Has one answer for the validation, and lists of nothing."""

    def __init__(self, environment, outcome):
        self.environment, self._outcome = environment, outcome
        self.tokens = self

    def header(self, scope):
        return f"Bearer {scope}"

    def post(self, path, body, **_):
        return Reply(status=202, headers={}, body={})

    def outcome(self, reply, **_):
        return self._outcome

    def get(self, path, **_):
        return {}

    def pages(self, path, **_):
        return iter([])


def region_after(outcome):
    declared = read_declared(preview_of("dev"), "dev")
    assert declared is not None
    return check_offers(Client(declared.environment, outcome), declared)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("wrapper", ["", "InvalidTemplateDeployment"])
def test_an_error_in_a_good_answer_refuses_the_region(wrapper):
    error = {"code": wrapper, "details": [REFUSED]} if wrapper else REFUSED
    region = region_after(Reply(status=200, headers={}, body={"error": error}))
    assert (region.ok, region.known) == (False, True)
    assert region.detail == "refused (RequestDisallowedByPolicy): Tag cost-center is missing."
    assert region.mend.startswith("ask who keeps the policies of the subscription; `pulumi config")


def test_an_error_of_another_kind_or_none_in_time_says_nothing():
    odd = region_after(
        Reply(status=200, headers={}, body={"error": {"code": "Busy", "message": "no"}})
    )
    assert (odd.ok, odd.known, odd.detail) == (
        False,
        False,
        "Azure does not tell: it answers Busy: no",
    )
    late = region_after(None)
    assert (late.ok, late.known) == (False, False)
    assert late.detail == "not told: the validation did not end within 120 s"
    assert region_after(Reply(status=200, headers={}, body={})).ok
