"""What holds for all tests: signals do what they do in a shell."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take back what `nohup` or a background shell has the tests, and all they start, ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
