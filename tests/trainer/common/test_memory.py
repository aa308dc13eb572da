"""Freed memory is kept for the next step, unless its user has said otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
NUM_BYTES, NUM_ROUNDS = 40 << 20, 10
PAGES = NUM_BYTES // os.sysconf("SC_PAGE_SIZE")
# Takes and frees a large block again and again; prints how many pages were cleared after the first.
PROGRAM = f"""
import os, resource
from trainer.common.memory import keep_freed_memory
keep_freed_memory(os.environ)
bytearray({NUM_BYTES})
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({NUM_ROUNDS}):
    bytearray({NUM_BYTES})
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def cleared(**environ: str) -> int:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=PROJECT, env=os.environ | environ, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_freed_memory_is_kept_unless_its_user_has_said_otherwise() -> None:
    assert cleared() < PAGES
    assert cleared(GLIBC_TUNABLES="glibc.rtld.optional_static_tls=1024") < PAGES
    # What a user says is not changed.
    said = {
        "MALLOC_TRIM_THRESHOLD_": "131072",
        "GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072",
    }
    for name, value in said.items():
        assert cleared(**{name: value}) >= NUM_ROUNDS * PAGES // 2, name
