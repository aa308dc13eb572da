"""Requests to one container of blobs, tried again where that can help."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode, urlsplit

from msgspec.structs import replace

from jobs.blobs.transfers.address import Address
from jobs.blobs.transfers.authority import API_VERSION, Authority, Identity, check_store
from jobs.blobs.transfers.connection import (
    Answer,
    Connection,
    Cut,
    FileRange,
    Sink,
    Steps,
    WrongLength,
)
from jobs.blobs.transfers.pace import Pace, wait_s

# With the waits between them about 15 s and about 75 s: a small request is what a person waits
# for, a transfer outlives a store that starts again.
CONTROL_TRIES, TRANSFER_TRIES = 6, 10
# Answers that a damaged request may have got: worth one more try.
_REFUSAL_TRIES = 2
# A store that is silent for so long is talked about.
_SILENCE_S = 3.0
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_THROTTLED = (429, 503)
_PASSING = (408, 500, 502, 504, *_THROTTLED)


class StoreError(Exception):
    """The store answered with an error, or (`status` None) not at all."""

    def __init__(self, status: int | None, code: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text


class Container:
    """One container, as `http://127.0.0.1:10000/account/container`.

    Raises EnvironmentFailure where an identity is not to be shown to such a host.
    """

    def __init__(
        self, url: str, authority: Authority, *, waiting: Callable[[str], None] = lambda _: None
    ) -> None:
        if isinstance(authority, Identity):
            check_store(url)
        self.address = Address(url)
        self.authority = authority
        self._path = urlsplit(url).path.rstrip("/")
        self._root = f"{urlsplit(url).scheme}://{self.address.name}{self._path}"
        self._date, self._date_ends = "", 0.0
        self._waiting = waiting
        # Since when nothing but failures came, and whether that was said.
        self._fails_since: float | None = None
        self._is_told = False

    def url_of(self, name: str) -> str:
        """A blob's URL, with nothing that proves anything."""
        return f"{self._root}/{quote(name)}"

    def request(
        self,
        connection: Connection,
        method: str,
        name: str = "",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | FileRange = b"",
        sink: Callable[[], Sink] | None = None,
        expected: int | None = None,
        accept: tuple[str, ...] = (),
        pace: Pace | None = None,
    ) -> Steps[Answer]:
        """Ask until there is an answer that a retry cannot better.

        `name` is a blob's, or empty for the container. `accept` lists error codes that are answers
        to the caller. `sink` is asked for at each try. `pace` is that of a transfer, which is tried
        for longer. Raises StoreError, and WrongLength for an answer that is not as long as
        `expected`.
        """
        tries = _Tries(CONTROL_TRIES if pace is None else TRANSFER_TRIES)
        while True:
            head, proof = self._head(method, name, query or {}, headers or {}, body)
            try:
                answer = yield from connection.request(
                    head, body, sink() if sink else None, expected
                )
            except (Cut, WrongLength) as error:
                yield self._tell(tries.wait_after_failure(error), error)
                continue
            if answer.status < 300 or answer.error_code in accept:
                self._fails_since, self._is_told = None, False
                return replace(answer, num_tries=tries.num) if tries.num > 1 else answer
            if answer.status in _THROTTLED and pace is not None:
                pace.throttled()
            is_refused = answer.status in (401, 403)
            is_renewed = is_refused and self.authority.refused(answer.status, proof)
            wait_s = tries.wait_after_error(answer, is_renewed=is_renewed)
            yield self._tell(wait_s, _error_of(answer))

    def _tell(self, wait_s: float, error: Exception) -> float:
        """Have it said, once, that the store has been waited for for long; gives `wait_s`."""
        now = time.monotonic()
        self._fails_since = self._fails_since or now
        is_long = now + wait_s - self._fails_since >= _SILENCE_S
        # Nobody answered for many seconds already.
        is_long = is_long or isinstance(error.__cause__, TimeoutError)
        if is_long and not self._is_told:
            self._is_told = True
            self._waiting(str(error))
        return wait_s

    def _head(
        self,
        method: str,
        name: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | FileRange,
    ) -> tuple[bytes, str | None]:
        """A request without its body, and the header in it that proves who asks."""
        path = f"{self._path}/{quote(name)}" if name else self._path
        fields = {"x-ms-date": self._now(), "x-ms-version": API_VERSION, **headers}
        if method != "GET":
            length = len(body) if isinstance(body, bytes) else body.length
            fields["content-length"] = str(length)
        proof = self.authority.header(method, path, query, fields)
        if proof is not None:
            fields["authorization"] = proof
        given = self.authority.query()
        ask = urlencode(query, quote_via=quote) + ("&" if query and given else "") + given
        lines = "".join([f"{field}: {value}\r\n" for field, value in fields.items()])
        target = f"{path}?{ask}" if ask else path
        head = f"{method} {target} HTTP/1.1\r\nhost: {self.address.name}\r\n{lines}\r\n"
        return head.encode(), proof

    def _now(self) -> str:
        now = time.time()
        if now >= self._date_ends:
            self._date, self._date_ends = _date(now), now + 1
        return self._date


class _Tries:
    """Counts the tries of one request; its methods raise where another would not help."""

    def __init__(self, most: int) -> None:
        self.num = 1
        self._most = most
        self._num_failures = 0
        self._num_refusals = 0

    def wait_after_failure(self, error: Cut | WrongLength) -> float:
        """Without an answer, or without a whole one."""
        if isinstance(error, WrongLength):
            self._num_refusals += 1
            if self._num_refusals >= _REFUSAL_TRIES:
                raise error
        elif error.is_final:
            raise StoreError(None, "", str(error)) from error
        elif error.was_reused and self.num == 1:
            # A store may close what was idle for a while: that is no failure.
            self.num += 1
            return 0.0
        return self._next(StoreError(None, "", str(error)), None)

    def wait_after_error(self, answer: Answer, *, is_renewed: bool) -> float:
        """After an answer that is an error; `is_renewed`: the next try has newer proof."""
        error = _error_of(answer)
        if answer.status not in _PASSING:
            if is_renewed:
                self._num_refusals = 0
            self._num_refusals += 1
            if self._num_refusals >= _REFUSAL_TRIES:
                raise error
        return self._next(error, _asked_s(answer))

    def _next(self, error: StoreError, asked_s: float | None) -> float:
        self.num += 1
        self._num_failures += 1
        if self._num_failures >= self._most:
            raise error
        return wait_s(self._num_failures, asked_s)


def _date(now: float) -> str:
    """As HTTP writes it, in English whatever the locale."""
    at = time.gmtime(now)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    return f"{day}, {at.tm_mday:02} {month} {at.tm_year} {time.strftime('%H:%M:%S', at)} GMT"


def _error_of(answer: Answer) -> StoreError:
    code = answer.error_code
    line = answer.head.partition(b"\r\n")[0].decode("latin-1")
    return StoreError(answer.status, code, code or line)


def _asked_s(answer: Answer) -> float | None:
    """Give Retry-After's seconds; its other form, a date, no blob store sends."""
    asked = answer.header("retry-after")
    return min(float(asked), 60.0) if asked is not None and asked.isdecimal() else None
