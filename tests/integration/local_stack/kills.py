"""Kills `pulumi up` of a local stack by -9, once it is locked or later."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from tests.busy import wait_until


def is_locked(project):
    """Whether an `up` is under way, or was when it was killed."""
    return any((project.root / ".trainyard" / "state").glob(".pulumi/locks/**/*.json"))


def kill_up(project, victim, after_s):
    """Start `pulumi up` and kill it once it is locked, or later; False when it had ended before."""
    project.write_settings()
    options = ["-s", "local", "--yes", "--skip-preview"]
    up = subprocess.Popen(
        project.pulumi_command("up", *options),
        cwd=project.root,
        env=project.environment_variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if after_s is None:
        wait_until(lambda: up.poll() is not None or is_locked(project), 120)
    else:
        time.sleep(after_s)
    if up.poll() is None:
        # The wrapper is a shell that has become Pulumi: its pid leads the group and is the CLI.
        (os.killpg if victim == "group" else os.kill)(up.pid, signal.SIGKILL)
    return up.wait() == -signal.SIGKILL
