"""A cell that follows a run is interrupted as a person does it, in a real kernel: the run goes on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from jobs.contracts.spec import RunState
from jobs.engines.local.engine import LocalEngine
from jobs.runs.supervision import take_lock
from tests.busy import how_busy
from tests.pulumi_project import REPO

START_S = 60


@pytest.fixture
def kernel(monkeypatch, tmp_path):
    """A kernel of this interpreter that imports from here, over sockets in a folder."""
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    manager = KernelManager(transport="ipc", ip=str(tmp_path / "kernel"))
    manager.kernel_spec.argv[0] = sys.executable
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=START_S * how_busy())
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_interrupting_the_cell_detaches_and_the_run_goes_on(launching, kernel):
    manager, client = kernel
    run = launching.add_run(name="long")
    folder = Path(launching.workspace, "runs", run)
    events = folder / "events.jsonl"
    on = [each for each in events.read_text().splitlines() if '"completed"' not in each]
    events.write_text("\n".join(on) + "\n")
    lock = take_lock(folder)  # somebody supervises it
    try:
        cell = f"import trainyard\nrun = trainyard.Run({run!r}, env={str(launching.env_file)!r})\nrun.follow()"
        heard = []

        def hear(told):
            heard.append(told)
            if told["msg_type"] == "update_display_data" and "interrupted" not in vars(client):
                client.interrupted = True
                manager.interrupt_kernel()

        reply = client.execute_interactive(cell, output_hook=hear, timeout=START_S * how_busy())
        assert reply["content"]["status"] == "ok"
        shown = [each for each in heard if each["msg_type"] == "display_data"]
        assert "long</strong>" in shown[0]["content"]["data"]["text/html"]
        said = "".join(
            each["content"].get("text", "") for each in heard if each["msg_type"] == "stream"
        )
        assert said == f"detached; {run} goes on\n"
        after = client.execute_interactive(
            "run.state", output_hook=heard.append, timeout=60 * how_busy()
        )
        assert after["content"]["status"] == "ok"
        assert heard[-2]["content"]["data"]["text/plain"] == "'running'"
        engine = LocalEngine(launching.environment)
        assert engine.store.status(engine.store.handle(run)).state is RunState.RUNNING
    finally:
        os.close(lock)
