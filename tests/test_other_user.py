"""Another user of this machine is played by a fork of pytest, which must not go on as a second one."""

from __future__ import annotations

import pytest

from tests.fakes.other_user import as_other_user, needs_root


@needs_root
@pytest.mark.parametrize("error", [PermissionError, AssertionError, KeyboardInterrupt])
def test_an_error_of_the_other_user_is_named_and_ends_its_process(
    error: type[BaseException],
) -> None:
    def act() -> str:
        raise error

    assert as_other_user(act) == error.__name__
