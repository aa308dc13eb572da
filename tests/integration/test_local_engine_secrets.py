"""A secret stays hidden when torch's store or mpirun starts beside the ranks, too."""

from __future__ import annotations

import pytest

from tests.fakes.gangs import Gangs
from tests.faults.test_secrets import check_secret_stays_hidden


@pytest.mark.parametrize("launcher", ["torch", "mpi"])
def test_secret_is_in_no_command_line_and_no_byte_of_the_run(
    torch_gangs: Gangs, launcher: str
) -> None:
    check_secret_stays_hidden(torch_gangs, launcher)
