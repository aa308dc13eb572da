"""Turns a mistake of ours into an error that pages can show, where threads of the server end."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TypeVar

from jobs.contracts.errors import LaunchError
from jobs.host import console

Value = TypeVar("Value")


class Bug(LaunchError):
    """A mistake of ours that a request or an action ended with; its cause is the error itself."""


def or_bug(do: Callable[[], Value]) -> Value:
    """Do what a request or an action asks; raises LaunchError as a verb does, Bug for whatever else.

    As `main()` is the edge of `launch`, this is that of the server, which outlives each of them:
    whatever a verb fails with, who asked is told; where it was written, `launch ui` prints.
    """
    try:
        return do()
    except LaunchError:
        raise
    except (
        Exception,
        KeyboardInterrupt,
    ) as error:  # a verb that was interrupted is no end of the server
        console.warn("".join(traceback.format_exception(error)))
        message = f"{type(error).__name__}: {error}"
        raise Bug(message, hint="this is a bug in launch") from error
