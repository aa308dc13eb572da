"""Executes a notebook as a rank's program: parameters go in, its lines come out, every output is kept.

    python -c <this text> NOTEBOOK OUTPUT [PARAMETERS]

NOTEBOOK is read, OUTPUT written after each cell: what a run that failed had shown is there, too.
PARAMETERS, a JSON object, become a cell of assignments behind the one tagged `parameters`, else in front.
It needs nbclient and ipykernel; the rest is standard library, Python 3.9.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from math import isfinite
from typing import Any, cast

# The first word of a job's command that stands for this program, on every engine.
PROGRAM = "trainyard-notebook"
NEEDS = ("nbclient", "ipykernel")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
SIGN_EVERY_S = 1.0


def notebook_command(python: str, words: Sequence[str]) -> list[str]:
    """Give the command that executes a notebook; `words` are the program's arguments."""
    return [python, "-c", source(), *words]


def source() -> str:
    """Read the text of this module, which may lie in an archive."""
    import pkgutil

    content = pkgutil.get_data("jobs.rank", "notebook.py")
    assert content is not None, "rank.pyz holds its sources"
    return content.decode()


def main() -> int:
    """Execute the notebook that the arguments name; gives the exit code: 1 if a cell failed."""
    path, target, *given = sys.argv[1:]
    try:
        formats, manager = import_module("nbformat"), import_module("jupyter_client.manager")
        clients, _ = (import_module(each) for each in NEEDS)
    except ModuleNotFoundError as error:
        needed = " and ".join(NEEDS)
        say(f"error: a notebook needs {needed}, and there is no `{error.name}`\n")
        say(f"hint: name {needed} in a file of the code, and add `requirements: FILE` to the job\n")
        return 1
    notebook = formats.read(path, as_version=4)
    insert_parameters(notebook, json.loads(given[0]) if given else {}, formats)
    with tempfile.TemporaryDirectory(prefix="nb") as folder:
        os.environ["IPYTHONDIR"] = folder
        # Sockets of files in a folder of this user's alone: what cells print is read at a port by others
        # of the machine, too. The one port left takes what forked children print, by a secret of theirs.
        kernel = manager.AsyncKernelManager(
            kernel_name="python3", transport="ipc", connection_file=f"{folder}/kernel.json"
        )
        client = clients.NotebookClient(notebook, km=kernel, timeout=None, startup_timeout=600)
        client.on_cell_executed = partial(save_after_cell, notebook, target, formats)
        client.process_message = Teller().telling(client.process_message)
        try:
            client.execute(cleanup_kc=True)
        except clients.exceptions.CellExecutionError:
            return 1
        except clients.exceptions.DeadKernelError as error:
            say(f"{error}\n")
            return 1
        finally:
            save(notebook, target, formats)
    return 0


def insert_parameters(notebook: Any, parameters: dict[str, Any], formats: Any) -> None:
    """Add a cell that assigns the parameters, where papermill would: others read it, too."""
    if not parameters:
        return
    text = "\n".join(f"{name} = {literal(value)}" for name, value in parameters.items())
    cell = formats.v4.new_code_cell(text, metadata={"tags": ["injected-parameters"]})
    tags = [each.metadata.get("tags", ()) for each in notebook.cells]
    at = next((at + 1 for at, each in enumerate(tags) if "parameters" in each), 0)
    notebook.cells.insert(at, cell)


def literal(value: Any) -> str:
    """Write a parameter as Python, which has no word for what is no finite number."""
    if isinstance(value, list):
        return f"[{', '.join(literal(each) for each in cast('list[Any]', value))}]"
    is_finite = not isinstance(value, float) or isfinite(value)
    return repr(value) if is_finite else f"float('{value}')"


class Teller:
    """Prints what cells tell: text, results, tracebacks, and a sign of life where there is no text.

    A bar that a notebook draws is a message without text; the log takes a carriage return for a sign of life.
    """

    def __init__(self) -> None:
        self._told_s = -SIGN_EVERY_S
        self._is_in_line = False

    def telling(self, process: Any) -> Any:
        """Wrap what takes the kernel's messages."""

        def told(message: Any, cell: Any, number: int) -> Any:
            self.tell(message["msg_type"], message["content"])
            return process(message, cell, number)

        return told

    def tell(self, kind: str, content: Any) -> None:
        """Print a message of a cell that runs."""
        plain = ""
        if kind in {"execute_result", "display_data"}:
            plain = content["data"].get("text/plain", "")
        if kind == "stream":
            self._say(content["text"], content["name"])
        elif plain:
            self._say(plain + "\n", "stdout")
        elif kind == "error":
            self._say(COLOUR.sub("", "\n".join(content["traceback"])) + "\n")
        elif time.monotonic() - self._told_s >= SIGN_EVERY_S:
            # What a cell has begun to write would be drawn over.
            self._say("\n" if self._is_in_line else "\r", "stdout")

    def _say(self, text: str, stream: str = "stderr") -> None:
        say(text, stream)
        self._told_s = time.monotonic()
        self._is_in_line = not text.endswith(("\n", "\r")) if text else self._is_in_line


def save_after_cell(notebook: Any, target: str, formats: Any, **_cell: Any) -> None:
    """Save what has run so far: nbclient calls it with the cell that ended."""
    save(notebook, target, formats)


def save(notebook: Any, target: str, formats: Any) -> None:
    """Write the notebook; a reader finds the last one or this one, each whole."""
    formats.write(notebook, f"{target}.new")
    os.replace(f"{target}.new", target)


def say(text: str, stream: str = "stderr") -> None:
    """Write to a standard stream at once."""
    out = sys.stdout if stream == "stdout" else sys.stderr
    out.write(text)
    out.flush()


if __name__ == "__main__":
    sys.exit(main())
