"""The Makefile defines each variable that it uses."""

from __future__ import annotations

import re
from pathlib import Path

MAKEFILE = Path(__file__).resolve().parents[2] / "Makefile"


def test_each_variable_that_is_used_is_defined() -> None:
    text = MAKEFILE.read_text(encoding="utf-8")

    used = set(re.findall(r"\$\(([A-Z_]+)\)", text))
    defined = {"MAKE", *re.findall(r"^([A-Z_]+) *\??:?=", text, re.MULTILINE)}

    assert used
    assert used - defined == set()
