"""`pulumi up` of an Azure stack killed by -9 at twenty random moments: one repair and one `up` mend each."""

from __future__ import annotations

import pytest

from tests.campaign import campaign
from tests.integration.azure_stack.kills import copy_pristine, kill_and_mend


@pytest.mark.faults
def test_every_killed_up_of_many_is_mended_by_one_repair_and_one_up(new_project, tmp_path):
    project = new_project("dev")
    mended, broken = kill_and_mend(project, copy_pristine(project, tmp_path), 20)
    print("\n".join(mended))
    campaign("kills of `up` of an Azure stack", tried=20, survived=len(mended))
    assert broken == []
    assert project.preview() == {}
