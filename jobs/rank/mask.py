"""Mask a job's secrets in its ranks' output, in the forms in which programs print them."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterator

# A shorter one would strike out half of every log; of those below the second not every form is known.
SHORTEST, SHORT = 4, 8
SHORTEST_FORM = _PART = 6
MASK = b"***"
_WRAPS = (64, 76)  # as PEM and MIME break lines of base64
# A line of base64 and nothing else.
_CODE_LINE = re.compile(rb"^[A-Za-z0-9+/_-]{6,76}(?=={0,2}\r?(?:\n|\Z))", re.MULTILINE)
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Mask:
    """Strikes one rank's secrets out of texts."""

    def __init__(self, secrets: list[str]) -> None:
        found = {form for secret in secrets for line in _lines(secret) for form in _forms(line)}
        self._forms = sorted(found, key=len, reverse=True)
        self.longest = len(self._forms[0]) if self._forms else 0
        self._codes = [code for secret in secrets for code in _whole_codes(secret)]
        # One of them is in whatever holds a part of a code, unless there are lines in its middle.
        self._hints = {each for code in self._codes for each in (code[:_PART], code[-_PART:])}
        self._has_middle = any(len(code) > min(_WRAPS) for code in self._codes)

    def strike_out(self, text: bytes) -> bytes:
        """Put `***` in the place of each secret."""
        if self._has_middle or any(hint in text for hint in self._hints):
            text = _CODE_LINE.sub(self._strike_part, text)
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return text

    def _strike_part(self, line: re.Match[bytes]) -> bytes:
        """Strike a part of a secret out of a line of base64 that was broken within it."""
        text = line[0]
        if any(text in code for code in self._codes):
            return MASK
        ends = max((_overlap(text, code) for code in self._codes), default=0)
        begins = max((_overlap(code, text) for code in self._codes), default=0)
        if max(begins, ends) < _PART:
            return text
        return text[:-ends] + MASK if ends > begins else MASK + text[begins:]

    def may_begin_at_end(self, text: bytes) -> bool:
        """Tell whether the text ends with the beginning of a secret, whose rest may follow."""
        for form in self._forms:
            at = text.find(form[:SHORTEST], max(0, len(text) - len(form) + 1))
            while at >= 0:
                if form.startswith(text[at:]):
                    return True
                at = text.find(form[:SHORTEST], at + 1)
        return False


def _overlap(text: bytes, following: bytes) -> int:
    """Count the characters at the end of a text that the following one begins with."""
    lengths = range(min(len(text), len(following)), 0, -1)
    return next((length for length in lengths if text.endswith(following[:length])), 0)


def passwords_of_proxies(environ: dict[str, str]) -> list[str]:
    """Find the passwords in the addresses of proxies, as they stand there and unquoted."""
    found: list[str] = []
    for name, address in environ.items():
        if not name.lower().endswith("_proxy"):
            continue
        user, _, password = address.rpartition("@")[0].rpartition("//")[2].partition(":")
        quoted = password or user  # a token may stand alone
        found += [quoted, _unquoted(quoted)]
    return found


def _lines(secret: str) -> Iterator[str]:
    """Give the secret as a whole, and each line of it: a log is written by line."""
    for text in (secret, *secret.splitlines()):
        if len(text.strip()) >= SHORTEST:
            yield text.strip()


def _forms(text: str) -> Iterator[bytes]:
    raw = text.encode(errors="surrogateescape")
    yield raw
    quoted = [json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text), ascii(text)]
    quoted += [json.dumps(each[1:-1]) for each in quoted[:2]]  # JSON in a string of JSON
    quoted.append(json.dumps(quoted[1][1:-1], ensure_ascii=False))
    others = [each[1:-1].encode(errors="surrogateescape") for each in quoted]
    others += [repr(raw)[2:-1].encode(), raw.hex().encode(), raw.hex().upper().encode()]
    for form in (*others, *_urls(raw), *_base64(raw)):
        if len(form) >= SHORTEST_FORM:
            yield form


def _urls(raw: bytes) -> Iterator[bytes]:
    """Quoted for a URL: libraries differ in what they leave as it is, in case, and in blanks."""
    for kept in (b"", b"/", b"!'()*"):
        for pattern in (b"%%%02X", b"%%%02x"):
            url = b"".join(
                bytes([b]) if (b < 128 and chr(b).isalnum()) or b in b"-._~" + kept else pattern % b
                for b in raw
            )
            yield url
            yield url.replace(b"%20", b"+")


def _base64(raw: bytes) -> Iterator[bytes]:
    """Encoded alone, broken into lines, and behind other bytes (`user:secret`).

    Three bytes make four characters, so there are three places to begin at. The characters that
    also hold bits of a neighbour are left out, at the end both with and without.
    """
    for before in range(3):
        code, begin, end = _code(raw, before)
        pieces = [code[begin:], code[begin:end]]
        if not before:
            pieces += [code[at : at + wrap] for wrap in _WRAPS for at in range(0, len(code), wrap)]
        for each in pieces:
            yield each
            yield each.translate(_URL_SAFE)


def _whole_codes(secret: str) -> Iterator[bytes]:
    """Encode a secret in base64 at each of the three places; without what neighbours share."""
    raw = secret.strip().encode(errors="surrogateescape")
    for before in range(3 if len(raw) >= SHORT else 0):
        code, begin, end = _code(raw, before)
        yield code[begin:end]
        yield code[begin:end].translate(_URL_SAFE)


def _code(raw: bytes, before: int) -> tuple[bytes, int, int]:
    """Encode behind so many other bytes; gives also which characters hold bits of `raw` alone."""
    code = binascii.b2a_base64(bytes(before) + raw, newline=False).rstrip(b"=")
    return code, -(-before * 8 // 6), (before + len(raw)) * 8 // 6


def _unquoted(text: str) -> str:
    raw = text.encode(errors="surrogateescape")
    found = re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), raw)
    return found.decode(errors="surrogateescape")
