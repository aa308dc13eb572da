"""Finding 19: who reads a log (a colleague, Azure ML's page, a ticket) finds a secret in another form.

A program printed `user:secret` in base64, a URL or hex, or the password of the proxy; the log had it.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from jobs.contracts.spec import RunState
from jobs.rank.log import Log
from jobs.rank.mask import Mask, passwords_of_proxies
from tests.fakes.gangs import Gangs

SECRET = "p@ss\\w/' \"ör~hunter2"
LONG = "long-" * 30 + "ü"
KEY = "-----BEGIN KEY-----\nc2VjcmV0LW9uZS1saW5l\nLW9mLW1hbnk-_/+ab\n-----END KEY-----\n"


def shown(secret: str, text: str | bytes) -> str:
    raw = text if isinstance(text, bytes) else text.encode()
    return Mask([secret]).strike_out(raw).decode()


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("secret", [SECRET, LONG, KEY], ids=["short", "long", "lines"])
def test_base64_of_a_secret_among_other_text_shows_none_of_it(encode, secret: str) -> None:
    for user, behind in product(("", "u", "us", "use", "user:", "ü:"), ("", "@", "@host", "\n")):
        seen = shown(secret, encode(f"{user}{secret}{behind}".encode()))
        assert "***" in seen
        # What is left holds the user, and what shares a character with a neighbour.
        left = seen.replace("***", "")
        assert len(left) <= 4 * len(f"{user}{behind}".encode()) / 3 + 8, (user, behind)


FORMS = {
    "plain": SECRET,
    "hex": SECRET.encode().hex(),
    "HEX": SECRET.encode().hex().upper(),
    "path": quote(SECRET),
    "URL": quote(SECRET, safe=""),
    "form": quote_plus(SECRET),
    "encodeURIComponent": quote(SECRET, safe="!'()*"),
    "url": re.sub("%..", lambda escape: escape[0].lower(), quote(SECRET, safe="")),
    "JSON": json.dumps(SECRET)[1:-1],
    "JSON, UTF-8": json.dumps(SECRET, ensure_ascii=False)[1:-1],
    "JSON in JSON": json.dumps(json.dumps(SECRET))[3:-3],
    "JSON in JSON, UTF-8": json.dumps(json.dumps(SECRET, ensure_ascii=False), ensure_ascii=False)[
        3:-3
    ],
    "repr": repr(SECRET)[1:-1],
    "ascii": ascii(SECRET)[1:-1],
    "bytes": repr(SECRET.encode())[2:-1],
}


@pytest.mark.parametrize("form", FORMS)
def test_form_that_programs_print_a_secret_in_is_struck_out(form: str) -> None:
    assert shown(SECRET, f"a {FORMS[form]} b") == "a *** b"


@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize("secret", [LONG, KEY * 3], ids=["one line", "many"])
def test_base64_broken_into_lines_leaves_no_line(width: int, secret: str, tmp_path: Path) -> None:
    code = base64.b64encode(secret.encode())
    text = b"".join(code[at : at + width] + b"\n" for at in range(0, len(code), width))
    log = Log(str(tmp_path / "log"), Mask([secret]))
    for at in range(0, len(text), 50):
        log.feed(text[at : at + 50])
    log.flush()
    lines = [line.split(b" ", 1)[1] for line in (tmp_path / "log").read_bytes().splitlines()]
    assert lines == [b"***"] * (len(lines) - 1) + [lines[-1]]
    assert len(lines[-1].replace(b"***", b"")) < 8


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize("secret", [SECRET, LONG], ids=["short", "long"])
def test_base64_of_a_secret_behind_a_user_broken_anywhere_leaves_no_more_than_a_few_characters(
    encode, width: int, secret: str
) -> None:
    for num_before in range(1, 80):
        raw = b"u" * num_before + secret.encode() + b"@host"
        code = encode(raw)
        for line in (code[at : at + width] + b"\n" for at in range(0, len(code), width)):
            seen = shown(secret, line)
            begin = code.index(line[:-1])
            # The characters of this line that hold bits of the secret.
            inside = range(-(-num_before * 4 // 3), (num_before + len(secret.encode())) * 4 // 3)
            num_inside = len(set(inside) & set(range(begin, begin + len(line) - 1)))
            assert len(seen.replace("***", "")) <= len(line) - num_inside + 6, (num_before, line)


def test_secret_of_three_characters_is_left_where_four_are_struck_out() -> None:
    assert Mask(["abc", "wxyz"]).strike_out(b"abc and wxyz") == b"abc and ***"


def test_text_that_holds_no_secret_is_left_as_it_is() -> None:
    text = "epoch 1: loss 0.25, p@ss, 100%, aGVsbG8gd29ybGQ=, https://host/a%20b"
    assert shown(SECRET, text) == text


@pytest.mark.parametrize(
    ("address", "passwords"),
    [
        ("http://user:hunter2-%40-x@proxy:3128/", ["hunter2-%40-x", "hunter2-@-x"]),
        ("user:pass:word@proxy:3128", ["pass:word", "pass:word"]),
        ("http://token-alone@proxy:3128", ["token-alone", "token-alone"]),
        ("http://proxy:3128", ["", ""]),
    ],
)
def test_password_of_a_proxy_is_a_secret(address: str, passwords: list[str]) -> None:
    assert passwords_of_proxies({"HTTPS_PROXY": address, "PATH": "a:b@c"}) == passwords


def test_state_of_a_bar_is_held_back_only_while_it_may_end_with_half_a_secret() -> None:
    mask = Mask([SECRET, KEY])
    for form in (SECRET.encode(), KEY.splitlines()[1].encode()):
        told = [mask.may_begin_at_end(b"45% " + form[:length]) for length in range(len(form))]
        assert told == [length >= 4 for length in range(len(form))]
    assert not mask.may_begin_at_end(b"45% p@s, 36.2it/s")


def test_state_of_a_bar_beside_a_long_key_is_judged_in_a_part_of_the_work_that_its_forms_took() -> (
    None
):
    """Each state of a bar asks; a key of 50 lines has 700 forms."""
    bar = b"epoch 3: 45%|####      | 450/1000 [00:12<00:15, 36.2it/s, loss=0.123]"
    key = "\n".join(base64.b64encode(bytes([line]) * 48).decode() for line in range(50))
    mask = Mask([key])
    judged = lines_run(lambda: mask.may_begin_at_end(bar))
    assert 0 < 20 * judged < lines_run(lambda: Mask([key]))


def lines_run(call: Callable[[], object]) -> int:
    """Count the lines of Python that a call runs: work that no other process slows down."""
    count = 0

    def trace(_frame: object, event: str, _argument: object) -> Callable[..., object]:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


TALKATIVE = """
import base64, os
proxy = os.environ["https_proxy"]
user = proxy.split("//")[1].split("@")[0]
print(proxy, base64.b64encode(user.encode()).decode())
print(os.environ["PIN"], os.environ["LETTER"] * 3)
"""


def test_rank_strikes_out_its_proxys_password_and_warns_of_short_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://me:hunter2-and-more@127.0.0.1:1")
    gangs = Gangs(tmp_path)
    secrets = {"PIN": "4711", "LETTER": "x", "LONG": "long-enough"}
    handle = gangs.submit(["python", "-c", TALKATIVE], secrets=secrets)
    try:
        assert gangs.wait(handle).state is RunState.COMPLETED
        warning = (
            "warning: `PIN`, `LETTER`: a secret of fewer than 8 characters cannot be struck out of "
            "this log in every form (one of fewer than 4 in none)"
        )
        lines = ["http://me:***@127.0.0.1:1 bWU6***==", "*** xxx"]
        assert gangs.texts(handle, 0) == [warning, *lines]
        assert gangs.texts(handle, 1) == lines
    finally:
        gangs.end()
