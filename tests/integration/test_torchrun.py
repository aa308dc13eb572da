"""The launcher `torch` tells its ranks what the runtime's own torchrun tells them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from jobs.contracts.spec import RunState
from jobs.images.runtimes import PROJECT, runtime_python
from tests.busy import HANG_S
from tests.fakes.gangs import Gangs

PROGRAM = """
import json, os, sys
names = ("RANK", "WORLD_", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "OMP_NUM_")
told = {name: value for name, value in os.environ.items() if name.startswith(names)}
with open(os.path.join(sys.argv[1], told["RANK"] + ".json"), "w") as file:
    json.dump(told, file)
"""
# Of torchrun's agent: nobody reads its files, and whom it asks to end we ask ourselves.
AGENTS_OWN = {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
# Where and who: theirs are loopback, a free port and a name, too; threads we share out by cores.
OURS = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "", "OMP_NUM_THREADS": ""}


def told(folder: Path) -> dict[int, dict[str, str]]:
    return {int(file.stem): json.loads(file.read_text()) for file in folder.iterdir()}


def test_ranks_are_told_what_torchrun_tells_its_workers(torch_gangs: Gangs, tmp_path: Path) -> None:
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    handle = torch_gangs.submit(
        ["python", str(program), str(tmp_path / "ours")], launcher="torch", processes_per_node=2
    )
    torchrun = runtime_python("pytorch", PROJECT).with_name("torchrun")
    argv = ["--standalone", "--nproc-per-node", "2", program, tmp_path / "theirs"]
    subprocess.run([torchrun, *argv], check=True, timeout=HANG_S, stderr=subprocess.DEVNULL)
    assert torch_gangs.wait(handle).state is RunState.COMPLETED
    theirs, ours = told(tmp_path / "theirs"), told(tmp_path / "ours")
    run = Path(handle.run_dir).name
    for each in ours.values():
        assert each["TORCHELASTIC_RUN_ID"] == run
    for ranks in (ours, theirs):
        for each in ranks.values():
            each.update({**OURS, "TORCHELASTIC_RUN_ID": ""})
    for each in theirs.values():
        assert each.keys() >= AGENTS_OWN
        for name in AGENTS_OWN:
            del each[name]
    assert ours == theirs
