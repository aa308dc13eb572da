"""Lays a project around an environment, as if its stack had made it and `launch` had read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jobs.host.trust import trust


def lay_own_stack(
    root: Path, environment: dict[str, Any], tools: dict[str, str], *, is_trusted: bool = True
) -> None:
    """Write what `launch` knows a stack `local` by; `tools` are what set-up would have written."""
    (root / "Pulumi.yaml").write_text("name: trainyard\n")
    (root / "Pulumi.local.yaml").touch()
    state = root / ".trainyard/state/.pulumi/stacks/trainyard/local.json"
    cache = root / ".trainyard/cache/environment-local.json"
    for path in (state, cache):
        path.parent.mkdir(parents=True)
    state.write_text("{}")
    stamp = f"{str(state)!a}-{state.stat().st_mtime_ns}-{state.stat().st_size}"
    cache.write_text(json.dumps({"stamp": stamp, "read_s": 0, "environment": environment}))
    (root / ".trainyard" / "tools.json").write_text(json.dumps(tools))
    if is_trusted:
        trust(root)
