"""A layer's program: what it says of pip's errors, and that it keeps what is linked."""

from __future__ import annotations

import pytest

from jobs.images.runtimes import LINKED as LINKED_BY_HOROVOD
from jobs.rank.layer import LINKED, explain, on_python

CONFLICT = """\
ERROR: Cannot install -r r.txt (line 2) and torch==2.9.0 because these package versions have conflicts.

The conflict is caused by:
    The user requested torch==2.9.0
    sentences 5.1 depends on torch>=2.11
    The user requested (constraint) torch==2.15.0

To fix this you could try to:
"""
AMONG_THEMSELVES = """\
The conflict is caused by:
    a 1.0 depends on c<2
    b 1.0 depends on c>=2
"""
HASH = """\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated ...
    iniconfig==2.3.1 from https://host/iniconfig.whl (from -r r.txt (line 1)):
        Expected sha256 0000
"""
NO_HASH = "ERROR: Hashes are required in --require-hashes mode, but they are missing from some ..."


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (CONFLICT, "r.txt asks for `torch==2.9.0`, `sentences 5.1 depends on torch>=2.11`, and the image has `torch==2.15.0`"),
        (AMONG_THEMSELVES, "r.txt: its packages do not fit each other: `a 1.0 depends on c<2`, `b 1.0 depends on c>=2`"),
        (HASH, "r.txt: `iniconfig==2.3.1` is not the file that its hash names"),
        (NO_HASH, "r.txt: some packages have a hash and others have none"),
        ("ERROR: No matching distribution found for x", None),
    ],
)  # fmt: skip
def test_mistake_in_the_requirements_is_one_message(said: str, message: str | None) -> None:
    mistake = explain(said.splitlines(), "r.txt")
    assert (mistake and mistake[0]) == message


def test_packages_that_horovod_is_linked_against_are_kept() -> None:
    assert set(LINKED) == {"horovod", *LINKED_BY_HOROVOD}


PYTHON = "/runs/a b/0.layer/bin/python"
BELOW = b"import sys\n"


@pytest.mark.parametrize(
    ("first", "options"),
    [
        ("#!/opt/runtime/bin/python\n", ""),
        ("#! /usr/bin/python3.9 -E\n", " -E"),
        ("#!/bin/sh\n'''exec' \"/a b/bin/python3\" \"$0\" \"$@\"\n' '''\n", ""),
        ("#!/bin/sh\n'''exec' /long/bin/python -u \"$0\" \"$@\"\n' '''\n", " -u"),
        (f"#!/bin/sh\n'''exec' '{PYTHON}' \"$0\" \"$@\"\n' '''\n", ""),
        ("#!/bin/sh\nexec python\n", None),
        ("#!/bin/sh\n'''exec' 'no end\n", None),
        ("#!/usr/bin/env python\n", None),
        ("#!/usr/bin/perl\n", None),
        ("#!\n", None),
    ],
)
def test_program_of_the_image_is_run_by_the_layers_python(first: str, options: str | None) -> None:
    moved = on_python(first.encode() + BELOW, PYTHON)
    line = f"#!/bin/sh\n'''exec' '{PYTHON}'{options} \"$0\" \"$@\"\n' '''\n"
    assert moved == (None if options is None else line.encode() + BELOW)
