"""What the process of azureml-core says of an error: one line, and nothing that opens anything."""

from __future__ import annotations

import errno
import json
import select
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.engines.azure_ml_v1.worker import describe
from tests.busy import HANG_S

LOG = "https://account.blob.core.windows.net/azureml/ExperimentRun/dcid.RUN/std_log.txt"
QUERY = "sv=2021-12-02&sr=b&sig=TOP%2FSECRET"


class HTTPError(Exception):
    """As `requests` raises it: the text has the whole address."""

    def __init__(self, status: int, content: bytes, **headers: str) -> None:
        super().__init__(f"{status} Client Error: Forbidden for url: {LOG}?{QUERY}")
        self.response = SimpleNamespace(
            status_code=status,
            content=content,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
            url=f"{LOG}?{QUERY}",
        )


def test_a_refused_log_says_the_stores_code_and_not_its_address() -> None:
    xml = b"<Error><Code>AuthenticationFailed</Code></Error>"
    assert describe(HTTPError(403, xml, x_ms_error_code="AuthenticationFailed")) == {
        "kind": "HTTPError",
        "status": 403,
        "host": "account.blob.core.windows.net",
        "code": "AuthenticationFailed",
        "text": "AuthenticationFailed",
        "silent": False,
    }


@pytest.mark.parametrize("content", [b"", b"<html>", json.dumps({"error": {}}).encode()])
def test_an_answer_without_a_reason_lends_no_text_from_the_exception(content: bytes) -> None:
    assert describe(HTTPError(403, content))["text"] == "no reason given"


@pytest.mark.parametrize(
    "text",
    [
        f"HTTPSConnectionPool(host='account'): Max retries exceeded with url: /a/b.txt?{QUERY} (c)",
        f"<urlopen error of {LOG}?{QUERY}>",
        f'no "{LOG}?{QUERY}", and no {LOG}?{QUERY}.',
    ],
)
def test_an_address_in_a_text_comes_without_its_query(text: str) -> None:
    said = describe(ConnectionError(text))["text"]
    assert "SECRET" not in said
    assert "sig" not in said
    assert said.partition("?")[0] == text.partition("?")[0]


def test_a_question_stays_a_question() -> None:
    assert describe(ValueError("Is it there? Or gone?"))["text"] == "Is it there? Or gone?"


@pytest.mark.parametrize(
    ("inner", "text"),
    [(OSError(errno.EHOSTUNREACH, "No route"), "No route"), (OSError(113), "OSError")],
)
def test_a_lost_network_is_told_of(inner: OSError, text: str) -> None:
    """The first argument of such an error is a number, and a number is JSON."""
    outer = ConnectionError("the connection ended")
    outer.__cause__ = inner
    for error, said in ((outer, "the connection ended"), (inner, text)):
        told = describe(error)
        assert (told["status"], told["host"], told["text"]) == (None, "", said)
        assert told["silent"]


def test_a_message_that_is_json_is_read() -> None:
    message = {"url": f"{LOG}?{QUERY}", "status_code": 500, "error_details": None}
    told = describe(RuntimeError(json.dumps(message)))
    assert (told["status"], told["host"]) == (500, "account.blob.core.windows.net")
    assert told["text"] == "no reason given"


class SnapshotException(Exception):
    """As azureml-core raises it: of no network."""

    message = "The submitted folder is 400 MB"


@pytest.mark.parametrize(
    "error",
    [
        SnapshotException(),
        ValueError("x"),
        TypeError("x"),
        FileNotFoundError(errno.ENOENT, "No such file", "train.py"),
    ],
)
def test_an_error_that_is_not_the_networks_is_no_silence(error: Exception) -> None:
    told = describe(error)
    assert (told["status"], told["silent"]) == (None, False)


IDLE = """
import sys, threading
from jobs.engines.azure_ml_v1 import worker

class Turn(threading.Condition):
    def wait(self, timeout=None):
        print("waits", file=sys.stderr, flush=True)
        return super().wait(timeout)

class Stub:
    def __init__(self, line, *_names):
        self.line, self.got = line, threading.Event()
        line._turn = Turn()
        answer = line.answer
        def answered(said):
            answer(said)
            if said == {"result": "first"}:
                threading.Thread(target=self.ask, daemon=True).start()
        line.answer = answered

    def ask(self):
        self.token = self.line.token("x")
        self.got.set()

    def answer(self, request):
        if request["do"] == "second":
            self.got.wait()
            return self.token
        return "first"

worker.Worker = Stub
worker.main()
"""


def test_a_thread_that_wants_a_token_between_requests_waits_for_the_next() -> None:
    """What it said meanwhile would be taken for an answer, or it would take a request for one."""
    pipe = subprocess.PIPE
    argv = [sys.executable, "-c", IDLE, "subscription", "group", "name"]
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin
        assert stdout
        assert stderr

        def say(said: dict[str, Any]) -> Any:
            stdin.write(json.dumps(said).encode() + b"\n")
            stdin.flush()
            return json.loads(stdout.readline())

        assert say({"do": "first"}) == {"result": "first"}
        assert select.select([stdout, stderr], [], [], HANG_S)[0] == [stderr]
        assert stderr.readline() == b"waits\n"
        assert say({"do": "second"}) == {"token": True}
        assert say({"token": "T"}) == {"result": "T"}
        stdin.close()
        assert process.wait(HANG_S) == 0
