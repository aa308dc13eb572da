"""Asks torch for its flight record: the last collectives of each rank over NCCL, as it kept them.

torch writes the record when a collective's own time is over, and whenever something is written into
a pipe that it makes: a run that hangs is ended by a watch that knows nothing of collectives. The variables:
https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
`torchfrtrace` reads the records; they are pickles, so only whoever trusts the run should.
Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable

RECORD = "nccl-flight-record-rank-"  # in the run's outputs, so that it is brought to the store
_NUM_EVENTS = "2000"
# torch looks at its pipe once a second.
WRITING_S = 3.0


def flight_environment(run_dir: str) -> dict[str, str]:
    """Make the variables that have torch keep a record of each rank's collectives."""
    return {
        "TORCH_FR_BUFFER_SIZE": _NUM_EVENTS,
        "TORCH_FR_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": f"{run_dir}/outputs/{RECORD}",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": _stem(run_dir),
    }


def ask_for_records(run_dir: str, ranks: Iterable[int]) -> bool:
    """Have these ranks write their records; False where no rank listens for that."""
    was_heard = False
    for rank in ranks:
        # ENXIO: a pipe that nobody reads any more.
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW
            pipe = os.open(f"{_stem(run_dir)}{rank}.pipe", flags)
            try:
                if stat.S_ISFIFO(os.fstat(pipe).st_mode):
                    os.write(pipe, b"1\n")
                    was_heard = True
            finally:
                os.close(pipe)
    return was_heard


def _stem(run_dir: str) -> str:
    """Give the name that torch puts a rank's number and `.pipe` behind."""
    return f"{run_dir}/nodes/flight-"
