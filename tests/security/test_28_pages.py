"""The pages of `launch ui`: another user of the machine gets no byte, whatever cookie he has.

The attacker is any local user, or a server of his at another port of 127.0.0.1 that the browser was
led to: cookies are of a host, so it is shown the one of the pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.fakes.gangs import make_environment
from tests.fakes.other_user import as_other_user, exchange, needs_root
from tests.jobs.ui.conftest import TOKEN, Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    file = tmp_path / "environment.json"
    file.write_bytes(msgspec.json.encode(make_environment(tmp_path / "workspace")))
    made = Served(file)
    yield made
    made.end()


def request_of(served: Served, path: str, cookie: str = "") -> bytes:
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{served.port}"]
    lines += [f"Cookie: {cookie}"] if cookie else []
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


@needs_root
def test_another_user_gets_no_byte_with_the_token_or_the_cookie(served: Served) -> None:
    address = ("127.0.0.1", served.port)
    assert as_other_user(lambda: exchange(address, request_of(served, f"/?token={TOKEN}"))) == ""
    served.enter()  # so he has not used it up
    runs = request_of(served, "/runs", served.cookie)
    assert as_other_user(lambda: exchange(address, runs)) == ""
    assert exchange(address, runs).startswith("HTTP/1.1 200 OK")
