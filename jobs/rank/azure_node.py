"""Starts one rank of an Azure ML job: `python -I -S rank.pyz PLACE=PATH...`.

Nobody prepares or watches a run there, so this does what the local engine's supervisor does: makes
the run directory on the node, fetches secrets and what a stream needs by the node's identity, writes
the log to where Azure ML reads it, brings results to the store. Places are `checkpoints` and
`input.NAME`; the rest is in variables (jobs/engines/azure_ml/node_job.py). Standard library only.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

from jobs.rank.code import Altered, copy_sent, read_sent
from jobs.rank.main import Ending, Rank
from jobs.rank.world import World, map_world

RUN_VARIABLE, ATTEMPT_VARIABLE = "TRAINYARD_RUN", "TRAINYARD_ATTEMPT"
JOB_VARIABLE = "TRAINYARD_JOB"
SHAPE_FILE = ".trainyard/shape.json"  # what a store of blobs does not keep
RUN_DIR = ".trainyard/run"  # beside the code: on the node's own disk, and another one for each job
# What else this program is started as, beside the ranks.
UPLOADS, CHIEF = "--uploads", "--chief"
# Values of these variables let whoever has them act as the node or the run.
SECRET_VARIABLES = ("MSI_SECRET", "IDENTITY_HEADER", "AZUREML_RUN_TOKEN")
# How long a rank that has failed stays for the node's results, which are being brought.
LINGER_FOR_RESULTS_S = 10.0
_DEALT_OTHERWISE = (
    b"warning: mpirun does not fill one node after the other: NODE_RANK is wrong, and `setup` may run "
    b"more than once a node\n"
)


def main() -> int:
    """Run the rank that the environment and the arguments describe."""
    environ = dict(os.environ)
    settings = read_settings(environ)
    run_dir = f"{os.getcwd()}/{RUN_DIR}"
    if sys.argv[1] == UPLOADS:
        from jobs.rank.uploads import bring_results

        bring_results(settings, run_dir, node=int(sys.argv[2]), is_main=sys.argv[3] == "main")
        return 0
    if sys.argv[1] == CHIEF:
        from jobs.rank.chief import watch_chief

        watch_chief(settings, run_dir, int(sys.argv[2]))
        return 0
    places = dict(each.split("=", 1) for each in sys.argv[1:])
    environ = rank_variables(environ, is_chief_led=settings["chief"])
    with begin(run_dir, map_world(environ).rank):
        job = make_run_dir(settings, run_dir, places)
        return start(settings, job, environ)


def read_settings(environ: dict[str, str]) -> dict[str, Any]:
    """What the job's variables say, `run` and `attempt` among it."""
    told: dict[str, Any] = json.loads(base64.urlsafe_b64decode(environ[JOB_VARIABLE]))
    return {**told, "run": environ[RUN_VARIABLE], "attempt": int(environ[ATTEMPT_VARIABLE])}


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


def make_run_dir(settings: dict[str, Any], run_dir: str, places: dict[str, str]) -> dict[str, Any]:
    """Make the folders that all ranks of a node share; gives what rank/main.py has to know."""
    for name in ("ranks", "nodes", "inputs", *(f"outputs/{name}" for name in settings["outputs"])):
        os.makedirs(f"{run_dir}/{name}", exist_ok=True)
    os.makedirs(f"{run_dir}/outputs", exist_ok=True)
    inputs = {
        name.partition(".")[2]: path for name, path in places.items() if name != "checkpoints"
    }
    inputs.update((name, f"{run_dir}/inputs/{name}") for name in settings["streams"])
    return {
        "run_dir": run_dir,
        "checkpoints": places["checkpoints"],
        "command": settings["command"],
        "setup": settings["setup"],
        "inputs": inputs,
        "streams": list(settings["streams"]),
        "outputs": settings["outputs"],
        "leave_together": True,
    }


def rank_variables(environ: dict[str, str], *, is_chief_led: bool) -> dict[str, str]:
    """The environment as our launchers would have set it, where Azure ML does so otherwise."""
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


def start(settings: dict[str, Any], job: dict[str, Any], environ: dict[str, str]) -> int:
    """Fetch the secrets and run the rank; gives its exit code."""
    job["secrets"] = [*settings["secrets"], *SECRET_VARIABLES]
    problem = None
    if settings["secrets"]:
        from jobs.rank.identity import Identity, RankError
        from jobs.rank.vault import fetch_secrets

        try:
            environ.update(fetch_secrets(settings["vault"], settings["secrets"], Identity(environ)))
        except RankError as error:
            problem = f"error: {error} ({error.hint})\n"
    rank = AzureRank(settings, job, environ)
    return rank.give_up(problem) if problem else rank.run()


class AzureRank(Rank):
    """A rank whose node nobody else looks after."""

    logs_to_file = False

    def __init__(
        self, settings: dict[str, Any], job: dict[str, Any], environ: dict[str, str]
    ) -> None:
        super().__init__(job, environ)
        self._settings = settings
        self._uploads: _Helper | None = None
        if not self.world.local_rank:
            what = "main" if self.world.rank == 0 else "other"
            self._uploads = _Helper(UPLOADS, str(self.world.node), what)
        if "OMPI_COMM_WORLD_RANK" in environ and not _fills_nodes(self.world):
            self.log.feed(_DEALT_OTHERWISE)
        # Held open as long as this process lives.
        if settings["chief"] and self.world.rank:
            self._watcher = _Helper(CHIEF, str(self.world.rank))

    def give_up(self, problem: str) -> int:
        """End before the command began; `problem` is what the log says of it."""
        self.log.feed(problem.encode())
        self._close("secrets", Ending(1, None))
        self._leave(1)
        return 1

    def _execute(self, command: list[str], *, is_last: bool = False) -> Ending:
        ending = super()._execute(command, is_last=is_last)
        if is_last and self._settings["chief"]:
            from jobs.rank.chief import served

            if os.path.exists(served(self.job["run_dir"], self.world.rank)):
                return Ending(0, None)
        return ending

    def _build_node(self, folder: str) -> Ending | None:
        if not self.world.node:
            self._bring_metrics()
        if self._settings["streams"]:
            from jobs.rank.identity import Identity, RankError
            from jobs.rank.streams import Streams

            try:
                Streams(self._settings, self.job["run_dir"], Identity(self.env)).lay(self.env)
            except (RankError, OSError) as error:
                hint = getattr(error, "hint", "the node's disk has to take what a stream keeps")
                self.log.feed(f"error: {error} ({hint})\n".encode())
                return Ending(1, None)
        try:
            return super()._build_node(folder)
        except Altered as error:
            self.log.feed(f"error: {error}\n".encode())
            return Ending(1, None)

    def _copy_code(self, folder: str) -> None:
        """Azure ML has laid the code where this process was started.

        What is in `folder` already was left by ranks that were killed before all had begun.
        """
        code = os.getcwd()
        shutil.rmtree(folder, ignore_errors=True)
        copy_sent(code, folder, leave_out=("outputs",))
        content = read_sent(code, SHAPE_FILE)
        if content is None:  # there is nothing but plain files
            return
        shape = json.loads(content)
        for name in shape["folders"]:
            os.makedirs(f"{folder}/{name}", exist_ok=True)
        for name in shape["executable"]:
            os.chmod(f"{folder}/{name}", 0o700)
        for name, target in shape["links"].items():
            os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
            os.symlink(target, f"{folder}/{name}")

    def _bring_metrics(self) -> None:
        """The lines of earlier attempts, which the program goes on with.

        Also of a first one: after a node has failed Azure ML may start the same job anew.
        """
        from jobs.rank.identity import Identity, RankError
        from jobs.rank.services import Container

        settings = self._settings
        runs = Container(settings["store"], settings["runs"], Identity(self.env))
        try:
            content = runs.get(f"{settings['run']}/metrics.jsonl")
        except KeyError:
            return
        except RankError as error:
            # Else what this attempt brings would be put in their place.
            from jobs.rank.uploads import UNREAD_METRICS

            self._mark(UNREAD_METRICS)
            self.log.feed(f"warning: earlier metrics are not there: {error}\n".encode())
            return
        with open(f"{self.job['run_dir']}/metrics.jsonl", "wb") as file:
            file.write(content)

    def _save(self) -> None:
        """Where the rank is over, the store has its record before the node's other ranks see it.

        They stay no longer than that, and Azure ML ends all when the first has left.
        """
        if "ended_s" in self.record:
            self._is_over = True
            if self._uploads:
                self._mark("bringing")
            if self.record["exit_code"] != 0 or not self.world.rank:
                self._send_record()
        super()._save()

    def _leave(self, code: int) -> None:
        was_told = self._num_told
        if self._uploads:
            while not code and self._num_told == was_told and self._others_run():
                time.sleep(0.1)
            if self._uploads.finish(lambda: self._num_told > was_told):
                self._mark("brought")
        super()._leave(code)

    def _mark(self, what: str) -> None:
        with open(f"{self.job['run_dir']}/{what}", "w", encoding="utf-8"):
            pass

    def _has_mark(self, what: str) -> bool:
        return os.path.exists(f"{self.job['run_dir']}/{what}")

    def _linger(self, timeout_s: float) -> None:
        super()._linger(timeout_s)
        deadline, was_told = time.monotonic() + LINGER_FOR_RESULTS_S, self._num_told
        while self._has_mark("bringing") and not self._has_mark("brought"):
            if self._num_told > was_told or time.monotonic() > deadline:
                return
            time.sleep(0.05)

    def _are_others_over(self) -> bool:
        return not self._others_run()

    def _others_run(self) -> bool:
        """Whether ranks of this node are at it that end by themselves."""
        if self._settings["chief"]:
            return False
        others = (int(name[:5]) for name in os.listdir(f"{self.job['run_dir']}/ranks"))
        return any(
            rank < self.world.size and rank != self.world.rank and self._runs(rank)
            for rank in set(others)
        )

    def _runs(self, rank: int) -> bool:
        try:
            with open(self._record_path(rank), encoding="utf-8") as file:
                record = json.load(file)
            if "ended_s" in record:
                return False
            os.kill(record["pid"], 0)
        except (OSError, ValueError):
            return False
        return True

    def _send_record(self) -> None:
        """Put the record where whoever judges the run finds it; its times in those of the world."""
        from jobs.rank.identity import Identity, RankError
        from jobs.rank.services import Container

        ahead_s = time.time() - time.monotonic()
        record = {
            name: value + ahead_s if name.endswith("_s") and value is not None else value
            for name, value in self.record.items()
        }
        settings, pauses_s = self._settings, (0.5,)
        runs = Container(
            settings["store"],
            settings["runs"],
            Identity(self.env, pauses_s=pauses_s),
            pauses_s=pauses_s,
            timeout_s=3.0,
        )
        blob = f"{settings['run']}/ranks/{settings['attempt']}/{self.world.rank:05d}.json"
        try:
            answer = runs.put(blob, json.dumps(record).encode(), {})
            why = "" if answer.status == 201 else answer.why
        except RankError as error:
            why = str(error)
        if why:
            self.log.feed(
                f"warning: how this rank ended does not reach the store: {why}\n".encode()
            )


def _fills_nodes(world: World) -> bool:
    """Whether ranks fill one node after the other: under MPI the node is told from that."""
    return world.local_rank == world.rank % world.local_size


class _Helper:
    """This program once more, beside the rank; it ends when its input is closed."""

    def __init__(self, *arguments: str) -> None:
        outlet, self._inlet = os.pipe2(os.O_CLOEXEC)
        argv = [sys.executable, "-I", "-S", sys.argv[0], *arguments]
        actions = [(os.POSIX_SPAWN_DUP2, outlet, 0)]
        # What ends the ranks is not to end it, from its very start.
        masked = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        self._child = os.posix_spawn(
            sys.executable, argv, os.environ, file_actions=actions, setsigmask=masked
        )
        os.close(outlet)

    def finish(self, is_told: Callable[[], bool]) -> bool:
        """Let it end, and wait for that; False when told to leave meanwhile."""
        os.close(self._inlet)
        while not os.waitpid(self._child, os.WNOHANG)[0]:
            if is_told():
                return False
            time.sleep(0.02)
        return True
