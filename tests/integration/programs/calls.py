"""Calls programs one after the other in one process, since frameworks take seconds to load.

main([FILE])     a list of [MODULE, arguments, variables] -> JSON of [code, stdout, stderr]
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> None:
    """Call each, with its variables in the environment, and print what came of all."""
    found: list[tuple[object, str, str]] = []
    for module, arguments, variables in json.loads(Path(argv[0]).read_text()):
        os.environ.update(variables)
        said, wrong = io.StringIO(), io.StringIO()
        program = importlib.import_module(module)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
            try:
                code = program.main(arguments)
            except SystemExit as exit_:
                code = exit_.code
        found.append((code, said.getvalue(), wrong.getvalue()))
        for name in variables:
            del os.environ[name]
    print(json.dumps(found))
