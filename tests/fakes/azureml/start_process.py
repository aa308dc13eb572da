"""Starts one process of a job: `python start_process.py PLAN.json [INDEX]`, also under mpirun.

Standard library only: it runs with the job's own interpreter. It becomes the job's command, in its
node's folder, with its log instead of a terminal.
"""

import json
import os
import sys
from pathlib import Path


def main():
    plan = json.loads(Path(sys.argv[1]).read_text())
    index = int(sys.argv[2] if len(sys.argv) > 2 else os.environ["OMPI_COMM_WORLD_RANK"])
    process = plan["processes"][index]
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)
    Path(plan["pids"], str(index)).write_text(str(os.getpid()))
    log = os.open(process["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(process["folder"])
    os.environ.update(process["env"])
    os.execv("/bin/bash", ["bash", "-c", plan["command"]])


if __name__ == "__main__":
    main()
