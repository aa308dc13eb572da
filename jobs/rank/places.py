"""Notes the places that a program passes on its way: amounts done and times, from its progress file."""

from __future__ import annotations

import json
import math
import os
import stat
import time
from typing import Any

PROGRESS, HISTORY = "progress.json", "progress-history.jsonl"
MOST_BYTES = 1 << 16
LOOK_EVERY_S = 1.0
# Some 70 places each time that the attempt's time doubles: a month has about a thousand.
LEAST_GAP_S, LEAST_PART = 2.0, 0.01


class Places:
    """History of one attempt's progress, appended to what the attempts before have left.

    Times are those of the program's own writes.
    """

    def __init__(self, run_dir: str) -> None:
        self._file, self._history = f"{run_dir}/{PROGRESS}", f"{run_dir}/{HISTORY}"
        self._began_s = self._looked_s = time.time()
        self._seen_s = _modified_s(self._file)  # of the attempt before
        self._noted_s: float | None = None

    def look(self, *, is_last: bool = False) -> None:
        """Note the place if the file has changed and the place before is old enough; raises OSError."""
        now_s = time.time()
        if not is_last and now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        changed_s = _modified_s(self._file)
        # Not before the place before, wherever the clock was set.
        when_s = max(min(changed_s, now_s), self._noted_s or self._began_s)
        if changed_s == self._seen_s or not (is_last or self._is_due(when_s)):
            return
        done = _read_done(self._file)
        if done is None:
            return
        begins = [{"time_s": self._began_s, "done": None}] if self._noted_s is None else []
        self._append([*begins, {"time_s": when_s, "done": done}])
        self._seen_s, self._noted_s = changed_s, when_s

    def _is_due(self, when_s: float) -> bool:
        if self._noted_s is None:
            return True
        return when_s - self._noted_s >= max(LEAST_GAP_S, LEAST_PART * (when_s - self._began_s))

    def _append(self, lines: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self._history, flags, 0o644)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _modified_s(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _read_done(path: str) -> float | None:
    """Read what is done, of a file that the program may have made anything of."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
                return None
            told = json.loads(file.read(MOST_BYTES))
        done = told["done"]
        if isinstance(done, bool) or not isinstance(done, (int, float)):
            return None
        return done if 0 <= done < math.inf else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
