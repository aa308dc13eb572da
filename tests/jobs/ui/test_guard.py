"""One browser gets in, once; other users, hosts and origins get nothing."""

from __future__ import annotations

import http.client
from urllib.parse import urlencode

import pytest
from starlette.routing import Mount

from jobs.ui.guard import HEADERS
from jobs.ui.pages import Pages, make_pages
from jobs.ui.reading import Reading
from tests.busy import HANG_S
from tests.jobs.ui.conftest import TOKEN

PATHS = {"place": "file", "run": "last", "path": "model.pt"}


def every_path() -> list[tuple[str, str]]:
    """Each route with its method, its parameters filled in."""
    routes = make_pages(Reading(None), port=1, token="")._pages.routes
    found = []
    for route in routes:
        if isinstance(route, Mount):
            found.append(("GET", f"{route.path}/app.js"))
            continue
        path = route.path.replace("{path:path}", "{path}").format(**PATHS)
        found += [(method, path) for method in sorted(route.methods - {"HEAD"})]
    return found


@pytest.mark.parametrize(("method", "path"), every_path())
def test_without_the_cookie_there_is_nothing(served, method, path):
    body = urlencode({"word": "cancel"}) if method == "POST" else None
    for cookie in (
        "",
        f"trainyard-{served.port}=guess",
        f"trainyard-{served.port}=\xe9",
        "a=b; ;;",
    ):
        answer = served.ask(path, method=method, body=body, cookie=cookie)
        assert answer.status == 403
        assert "launch ui" in answer.text
        assert "<" not in answer.text


def test_every_page_is_tried():
    assert len(every_path()) == len([each for each in dir(Pages) if each[0] != "_"]) + 3


def test_the_token_is_for_one_browser(served):
    assert served.ask("/?token=another").status == 403
    first = served.ask(f"/?token={TOKEN}")
    assert first.status == 200
    assert served.ask(f"/?token={TOKEN}").status == 403
    cookie = first.headers["set-cookie"]
    assert cookie.startswith(f"trainyard-{served.port}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie + first.text
    served.cookie = cookie.partition(";")[0]
    assert served.ask("/runs").status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "127.0.0.1", ""]
)
def test_a_name_that_was_bound_anew_gets_nothing(served, host):
    served.enter()
    answer = served.ask("/runs", host=host.format(port=served.port) or "[::1]")
    assert answer.status == 421
    assert "html" not in answer.headers["content-type"]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", ""])
def test_no_other_page_can_act(written, served, origin):
    run = written.add_run()
    served.enter()
    body = urlencode([("word", "cancel"), ("word", f"--env={written.env_file}"), ("word", run)])
    answer = served.ask("/act", method="POST", body=body, origin=origin)
    assert answer.status == 403
    from tests.fakes.launching import FakeEngine

    assert FakeEngine.cancelled == []
    assert served.ask("/act", method="POST", body=body).status == 200
    assert FakeEngine.cancelled == [run]


def test_no_other_page_can_read(served):
    served.enter()
    assert served.ask("/runs", origin="http://evil.example").status == 403
    headers = served.ask("/runs").headers
    assert HEADERS.items() <= headers.items()
    assert "access-control-allow-origin" not in headers
    policy = headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


def test_it_listens_on_loopback_alone(served):
    assert served._socket.getsockname()[0] == "127.0.0.1"


def test_other_users_are_not_told_the_address_by_the_browsers_arguments(tmp_path, monkeypatch):
    from jobs.ui import server

    opened = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(server.webbrowser, "open", opened.append)

    server._open_browser(tmp_path, f"http://127.0.0.1:1/?token={TOKEN}")

    (address,) = opened
    assert TOKEN not in address
    page = tmp_path / "open.html"
    assert address == page.as_uri()
    assert page.stat().st_mode & 0o777 == 0o600
    assert TOKEN in page.read_text()


def test_a_broken_request_ends_its_connection_only(served):
    served.enter()
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=HANG_S)
    connection.sock = None
    connection.connect()
    connection.sock.sendall(b"GET /runs HTTP/1.1\r\nhost: \xff\xfe\r\n\r\n")
    assert connection.sock.recv(100).startswith(b"HTTP/1.1 4")
    connection.close()
    assert served.ask("/runs").status == 200
