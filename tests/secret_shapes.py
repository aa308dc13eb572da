"""What looks like a secret of Azure in a text: what must be in no output and no state."""

from __future__ import annotations

import re

# Each begins with what marks it; a name alone, as `sasPolicy` or `AccountKey` in a document, is none.
SHAPES = {
    "signature of a SAS": re.compile(r"[?&;\"\s]sig=[A-Za-z0-9%+/=]{20,}"),
    "connection string": re.compile(
        r"(?:AccountKey|SharedAccessKey|SharedAccessSignature|InstrumentationKey|Password|Pwd)"
        r"=[^;\"\s]{8,}",
        re.IGNORECASE,
    ),
    "token": re.compile(r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}"),
    # Storage accounts (88 characters), registries (52 and more): base64 and nothing else.
    "account key": re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{42,}(?:==|=)(?![A-Za-z0-9+/=])"),
    "private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "secret of an application": re.compile(r"[A-Za-z0-9_~.-]{3}8Q~[A-Za-z0-9_~.-]{34}"),
}


def find_secrets(text: str) -> list[str]:
    """The kinds of secret that the text seems to hold, each with where it begins."""
    return [
        f"{kind}: {match[0][:24]}..."
        for kind, shape in SHAPES.items()
        if (match := shape.search(text))
    ]
