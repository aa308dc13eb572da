"""Settings of a rank on a node of Azure ML whose store nobody asks."""

from __future__ import annotations

from typing import Any

from jobs.rank.settings import Settings

# As they stand in the job's variable ...
TOLD: dict[str, Any] = {
    "command": ["python", "program.py"],
    "setup": [],
    "chief": False,
    "outputs": [],
    "secrets": {},
    "vault": None,
    "store": "http://127.0.0.1:1/nowhere",
    "data": "data",
    "runs": "runs",
    "streams": {},
}
# ... and as they are read, of a job without a command.
SETTINGS = Settings(run="a", attempt=1, **{**TOLD, "command": [], "store": ""})
