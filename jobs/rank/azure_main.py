"""Starts one rank of an Azure ML job: `python -I -S rank.pyz PLACE=PATH...`.

Nobody prepares a run there, so this does what the local engine's supervisor does: makes the run
directory on the node, and fetches secrets by the node's identity; azure_node.py does the rest. The log goes to
where Azure ML reads it. Places are `checkpoints` and `input.NAME`; the rest is in variables (settings.py).
Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Generator
from typing import Any

from jobs.rank.azure_node import CHIEF, HANG, UPLOADS, AzureNode
from jobs.rank.chief import watch_chief
from jobs.rank.identity import Identity, NodeFailure, with_identity
from jobs.rank.main import Rank, open_log
from jobs.rank.services import fetch_secrets
from jobs.rank.settings import (
    ATTEMPT_VARIABLE,
    JOB_VARIABLE,
    RUN_VARIABLE,
    Settings,
    read_settings,
)
from jobs.rank.topology import TOPOLOGY_VARIABLE, lay_topology
from jobs.rank.world import RankJob, World, map_world

RUN_DIR = ".trainyard/run"  # beside the code: on the node's own disk, and another one for each job
# Values of these variables let whoever has them act as the node or the run.
SECRET_VARIABLES = ("MSI_SECRET", "IDENTITY_HEADER", "AZUREML_RUN_TOKEN")
_DEALT_OTHERWISE = (
    b"warning: mpirun does not fill one node after the other: NODE_RANK is wrong, and `setup` may run "
    b"more than once a node\n"
)


def main() -> int:
    """Run the rank that the environment and the arguments describe."""
    os.environ.update(with_identity(dict(os.environ)))  # for the processes beside the rank, too
    environ = dict(os.environ)
    settings = read_settings(environ)
    run_dir = f"{os.getcwd()}/{RUN_DIR}"
    if sys.argv[1] == UPLOADS:
        # Threads are for this process alone.
        from jobs.rank.uploads import upload_results

        upload_results(settings, run_dir, node=int(sys.argv[2]), is_main=sys.argv[3] == "main")
        return 0
    if sys.argv[1] == HANG:
        from jobs.rank.hang import watch_hang

        watch_hang(settings, run_dir, sys.argv[2], is_alone=sys.argv[3] == "alone")
        return 0
    if sys.argv[1] == CHIEF:
        watch_chief(settings, run_dir, int(sys.argv[2]))
        return 0
    places = dict(each.split("=", 1) for each in sys.argv[1:])
    environ = {**rank_variables(environ, is_chief_led=settings.chief), **settings.env}
    with begin(run_dir, map_world(environ).rank):
        job = make_run_dir(settings, run_dir, places)
        if settings.topology:
            environ.setdefault(TOPOLOGY_VARIABLE, lay_topology(settings.topology, run_dir))
        return start(settings, job, environ)


@contextlib.contextmanager
def begin(run_dir: str, rank: int) -> Generator[None]:
    """Take part in a start of the job: within, the run directory is that start's.

    Azure ML may start the same job anew in the same folder. A rank that has begun there before,
    while no other is at work, is the first of a new start, and takes away what the last one left.
    """
    begun = f"{run_dir}/begun-{rank}"
    os.makedirs(run_dir, exist_ok=True)
    with open(os.open(f"{run_dir}.lock", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as lock:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(begun):
                shutil.rmtree(run_dir, ignore_errors=True)
        fcntl.flock(lock, fcntl.LOCK_SH)
        os.makedirs(run_dir, exist_ok=True)
        with open(begun, "wb"):
            pass
        yield


def make_run_dir(settings: Settings, run_dir: str, places: dict[str, str]) -> RankJob:
    """Make the folders that all ranks of a node share; gives the shared record."""
    for name in ("ranks", "nodes", "inputs", "outputs"):
        os.makedirs(f"{run_dir}/{name}", exist_ok=True)
    for name in settings.outputs:
        os.makedirs(f"{run_dir}/outputs/{name}", exist_ok=True)
    inputs = {
        name.partition(".")[2]: path for name, path in places.items() if name != "checkpoints"
    }
    inputs.update((name, f"{run_dir}/inputs/{name}") for name in settings.streams)
    inputs.update((name, f"{inputs[name]}/{file}") for name, file in settings.files.items())
    return RankJob(
        run_dir=run_dir,
        checkpoints=places["checkpoints"],
        command=settings.command,
        setup=settings.setup,
        requirements=settings.requirements,
        inputs=inputs,
        streams=list(settings.streams),
        outputs=settings.outputs,
        secrets=[*settings.secrets, *SECRET_VARIABLES],
        run=settings.run,
        filled=list(settings.env),
    )


def rank_variables(environ: dict[str, str], *, is_chief_led: bool) -> dict[str, str]:
    """Give the rank's environment as our launchers would have set it."""
    ours = (RUN_VARIABLE, ATTEMPT_VARIABLE, JOB_VARIABLE)
    environ = {name: value for name, value in environ.items() if name not in ours}
    if "TF_CONFIG" not in environ:
        return environ
    config = json.loads(environ["TF_CONFIG"])
    if is_chief_led:
        config = with_chief(config)
        environ["TF_CONFIG"] = json.dumps(config)
    if config["task"]["type"] == "ps":
        # Variables are kept in memory; a server that saw a GPU would take all of it.
        environ["CUDA_VISIBLE_DEVICES"] = "-1"
    return environ


def with_chief(config: dict[str, Any]) -> dict[str, Any]:
    """Make the first worker the chief, which Azure ML knows nothing of."""
    cluster, task = dict(config["cluster"]), dict(config["task"])
    cluster["chief"], cluster["worker"] = cluster["worker"][:1], cluster["worker"][1:]
    if task["type"] == "worker":
        index = int(task["index"])
        task.update({"type": "worker", "index": index - 1} if index else {"type": "chief"})
    return {**config, "cluster": cluster, "task": task}


def start(settings: Settings, job: RankJob, environ: dict[str, str]) -> int:
    """Fetch the secrets and run the rank; gives its exit code."""
    problem = None
    if settings.secrets:
        try:
            vault = settings.vault or ""
            environ.update(fetch_secrets(vault, settings.secrets, Identity(environ)))
        except NodeFailure as error:
            problem = f"error: {error} ({error.hint})\n"
    world = map_world(environ)
    log = open_log(job, world, environ)
    if "OMPI_COMM_WORLD_RANK" in environ and not _fills_nodes(world):
        log.feed(_DEALT_OTHERWISE)
    rank = Rank(job, world, environ, AzureNode(settings, job, world, environ, log), log)
    return rank.give_up("secrets", problem) if problem else rank.run()


def _fills_nodes(world: World) -> bool:
    """Tell whether ranks fill one node after the other: under MPI the node is told from that."""
    return world.local_rank == world.rank % world.local_size
