"""Imports PyTorch (or the modules it is given) once, then forks a rank for each line of JSON on stdin; run by the runtime.

    {"env": {...}, "cwd": DIR, "log": FILE, "errors": FILE, "argv": [MODULE, ...]}

What it says on stderr goes to `log`, too, where there are no `errors`.

Each rank is a process of its own that runs `MODULE.main(argv)` and ends as if it had been started
by itself, but for the seconds in which Python takes its modules apart. Written to stdout: the pid of each rank, then `PID STATUS` as each one ends. No thread
and no collective is started before the fork. The end of stdin ends all.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
import traceback
from typing import Any

# What PyTorch would load at its first step and its first wrapped model.
EARLY = (
    "horovod.torch",
    "numpy.random",
    "torch._dynamo",
    "torch._inductor.utils",
    "torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks",
    "tensorboard.compat.proto.event_pb2",
    "tensorboard.summary.writer.event_file_writer",
    "trainer.pytorch.mnist",
    "trainer.pytorch.hymenoptera",
    "trainer.pytorch.maskrcnn",
    "trainer.pytorch.maskrcnn_evaluation",
    "trainer.pytorch.own",
)


PR_SET_PDEATHSIG = 1


def main() -> int:
    for name in sys.argv[1:] or EARLY:
        importlib.import_module(name)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    read = b""
    gc.collect()
    gc.freeze()
    say("ready")
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            reap()
        if 0 in ready:
            got = os.read(0, 1 << 16)
            if not got:
                return 0
            *lines, read = (read + got).split(b"\n")
            for line in lines:
                start(json.loads(line))


def start(order: dict[str, Any]) -> None:
    """Fork; returns in this process only."""
    pid = os.fork()
    if pid:
        say(str(pid))
        return
    code = 1
    try:
        code = run(order)
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does at its end
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(order: dict[str, Any]) -> int:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Whoever ends this program, by a signal too, ends its ranks.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    log, errors = (
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for path in (order["log"], order.get("errors", order["log"]))
    )
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, log), (2, errors)):
        os.dup2(source, target)
    name, *argv = order["argv"]
    return importlib.import_module(name).main(argv) or 0


def reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        say(f"{pid} {os.waitstatus_to_exitcode(status)}")


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


if __name__ == "__main__":
    os._exit(main())
