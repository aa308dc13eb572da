"""One browser gets in, once; other users, hosts and origins get nothing."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from urllib.parse import urlencode

import pytest
from starlette.responses import Response
from starlette.routing import Mount

from jobs.contracts.errors import EnvironmentFailure
from jobs.ui.addresses import make_pages
from jobs.ui.guard import HEADERS, Guard
from jobs.ui.pages import Pages
from jobs.ui.reading import Reading
from jobs.ui.server import listen
from tests.busy import HANG_S, wait_until
from tests.jobs.ui.conftest import TOKEN

PATHS = {"place": "file", "run": "last", "path": "model.pt", "ref": "digits@1", "number": "1"}


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


def test_without_the_cookie_there_is_nothing(served):
    cookies = (*("", f"trainyard-{served.port}=guess", f"trainyard-{served.port}=\xe9", "a=b; ;;"),)
    paths = every_path()
    assert {method for method, _ in paths} == {"GET", "POST"}
    for method, path in paths:
        body = urlencode({"word": "cancel"}) if method == "POST" else None
        for cookie in cookies:
            answer = served.ask(path, method=method, body=body, cookie=cookie)
            assert (answer.status, "launch ui" in answer.text, "<" in answer.text) == (
                *(403, True, False),
            ), (method, path, cookie)


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
    "other",
    [
        'prefs={"theme":"dark"}',
        "a b=c",
        "[x]=1",
        "x@y=1",
        "\xe9=1",
        "=",
        "lone",
        'q="a',
        "trainyard-1=x",
    ],
)
def test_odd_cookies_of_other_programs_lock_nobody_out(served, other):
    """Cookies are a host's: all ports of 127.0.0.1 share them."""
    served.enter()
    for cookie in (f"{other}; {served.cookie}", f"{served.cookie}; {other}"):
        assert served.ask("/runs", cookie=cookie).status == 200
    assert served.ask("/runs", cookie=f"{other}; trainyard-{served.port}=guess").status == 403


def test_a_look_at_the_head_of_the_address_leaves_it_unused(served):
    """As chat programs and mail programs do with an address that somebody pastes."""
    head = served.ask(f"/?token={TOKEN}", method="HEAD")
    assert (head.status, "set-cookie" in head.headers) == (403, False)
    served.enter()


def test_the_used_address_leads_the_browser_that_is_in_to_the_runs(served):
    served.enter()
    again = served.ask(f"/?token={TOKEN}")
    assert (again.status, again.headers["location"]) == (307, "/runs")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["cancel", "--stack=local", "--stack=prod", "last"], "--stack=local"),
        (["cancel", "--env=/tmp/other.json", "last"], "--env=/tmp/other.json"),
        (["run", "-s", "prod", "digits"], "-s"),
    ],
)
def test_words_of_another_environment_are_neither_planned_nor_obeyed(written, served, words, says):
    from tests.fakes.launching import FakeEngine

    written.add_run()
    served.enter()
    submitted = list(FakeEngine.submitted)
    fields = urlencode([("place", "file"), *(("word", word) for word in words)])
    for answer in (
        served.ask(f"/act?{fields}"),
        served.ask("/act", method="POST", body=fields),
    ):
        assert answer.status == 400
        assert f"no page does `launch {words[0]} {says}`" in answer.text
    assert (FakeEngine.cancelled, FakeEngine.submitted) == ([], submitted)


@pytest.mark.parametrize("place", ["", "elsewhere"])
def test_an_action_is_of_an_environment_that_is_shown(written, served, place):
    from tests.fakes.launching import FakeEngine

    run = written.add_run()
    served.enter()
    fields = urlencode([("place", place), ("word", "cancel"), ("word", run)])
    assert served.ask(f"/act?{fields}").status == 404
    assert served.ask("/act", method="POST", body=fields).status == 404
    assert FakeEngine.cancelled == []


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "127.0.0.1", ""]
)
def test_a_name_that_was_bound_anew_gets_nothing(served, host):
    served.enter()
    answer = served.ask("/runs", host=host.format(port=served.port) or "[::1]")
    assert answer.status == 421
    assert "html" not in answer.headers["content-type"]


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1", "http://127.0.0.1", 200),
        ("localhost", None, 200),
        ("127.0.0.1:80", None, 200),
        ("evil.example", None, 421),
        ("127.0.0.1", "http://evil.example", 403),
    ],
)
def test_browsers_leave_out_the_port_that_all_know(host, origin, status):
    guard = Guard(Response("in"), port=80, token=TOKEN)
    headers = [(b"host", host.encode())] + ([(b"origin", origin.encode())] if origin else [])
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
    told = []

    async def send(message):
        told.append(message)

    asyncio.run(guard({**scope, "query_string": f"token={TOKEN}".encode()}, None, send))
    assert told[0]["status"] == status


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", ""])
def test_no_other_page_can_act(written, served, origin):
    run = written.add_run()
    served.enter()
    body = urlencode([("word", "cancel"), ("place", "file"), ("word", run)])
    answer = served.ask("/act", method="POST", body=body, origin=origin)
    assert answer.status == 403
    from tests.fakes.launching import FakeEngine

    assert FakeEngine.cancelled == []
    done = served.ask("/act", method="POST", body=body)
    assert done.status == 303
    assert FakeEngine.cancelled == [run]
    # Loading the page again does nothing again.
    for _ in range(2):
        assert served.ask(done.headers["location"]).status == 200
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


REUSE = [(), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,)]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("options", REUSE, ids=["plain", "SO_REUSEADDR", "SO_REUSEPORT"])
def test_the_port_is_ours_before_the_address_is_told(host, options):
    """Before uvicorn runs: nobody else may listen there, and who connects waits for the answer."""
    with listen(0) as listening:
        address = listening.getsockname()
        assert address[0] == "127.0.0.1"
        with socket.create_connection(address), socket.socket() as second:
            for each in options:
                second.setsockopt(socket.SOL_SOCKET, each, 1)
            with pytest.raises(OSError, match="in use"):
                second.bind((host, address[1])) or second.listen()


def test_a_port_in_use_is_named():
    with listen(0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(EnvironmentFailure, match=f"^port {port} cannot be served: Address al"):
            listen(port)


def test_other_users_are_not_told_the_address_by_the_browsers_arguments(tmp_path, monkeypatch):
    from jobs.ui import server

    opened = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(server.webbrowser, "open", opened.append)

    server._open_browser(tmp_path, f"http://127.0.0.1:1/?token={TOKEN}")

    wait_until(lambda: opened, HANG_S)
    (address,) = opened
    assert TOKEN not in address
    page = tmp_path / "open.html"
    assert address == page.as_uri()
    assert page.stat().st_mode & 0o777 == 0o600
    assert TOKEN in page.read_text()


def test_a_browser_that_stays_in_its_command_keeps_nobody_waiting(tmp_path, monkeypatch, capsys):
    """As one that BROWSER names does, until it is closed."""
    from jobs.ui import server

    is_closed, was_closed = threading.Event(), []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(
        server.webbrowser, "open", lambda _: was_closed.append(is_closed.wait(timeout=HANG_S))
    )

    server._open_browser(tmp_path, "http://127.0.0.1:1/?token=x")

    assert was_closed == []
    is_closed.set()
    # One that has a /tmp of its own, as snap's have, sees no page there.
    said = "if the browser shows no page, open the address above\n"
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("places", [["file"], ["file", "other"]])
def test_a_mistake_of_ours_ends_its_page_only(served, monkeypatch, capsys, places):
    monkeypatch.setattr(Reading, "ask", lambda *_, **__: {}["<key>"])
    monkeypatch.setattr(Reading, "places", lambda _: places)
    served.enter()
    answer = served.ask("/runs")
    assert answer.status == 500
    assert "KeyError: &#39;&lt;key&gt;&#39;" in answer.text
    assert "this is a bug in launch" in answer.text
    assert "Traceback" in capsys.readouterr().err
    assert served.ask("/colours.css").status == 200


def test_a_broken_request_ends_its_connection_only(served):
    served.enter()
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=HANG_S)
    connection.sock = None
    connection.connect()
    connection.sock.sendall(b"GET /runs HTTP/1.1\r\nhost: \xff\xfe\r\n\r\n")
    assert connection.sock.recv(100).startswith(b"HTTP/1.1 4")
    connection.close()
    assert served.ask("/runs").status == 200
