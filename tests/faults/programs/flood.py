"""Writes numbered lines as fast as it can, from two streams, then dies.    flood.py LINES END"""

from __future__ import annotations

import os
import signal
import sys

lines, end = int(sys.argv[1]), sys.argv[2]
rank = os.environ["RANK"]
odd = (7, 4095, 4096, 4097)  # writes that end inside of lines, beside a page's end
waiting = b"".join(b"%s %06d \xe2\x82\xac\n" % (rank.encode(), number) for number in range(lines))
at = turn = 0
while at < len(waiting):
    size = odd[turn % len(odd)]
    at += os.write(1 + turn % 2, waiting[at : at + size])
    turn += 1
os.write(1, b"last words")
if end == "SIGKILL" and rank == "0":
    os.kill(os.getpid(), signal.SIGKILL)
