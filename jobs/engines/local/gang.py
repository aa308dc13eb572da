"""Start, reap and end the processes of one gang; read each rank's report."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from jobs.engines.local.containers import Containers
from jobs.engines.local.launchers import GangRequest
from jobs.engines.local.rendezvous import Rendezvous
from jobs.host.processes import (
    Process,
    descendants,
    kill_leftovers,
    leftovers,
    read_process,
    read_table,
    send,
    send_to_group,
)
from jobs.host.untrusted import read_json
from jobs.rank.flight import WRITING_S, ask_for_records
from jobs.runs.failure import RankReport

KILL_TIMEOUT_S = 3.0
LAST_WORDS_S = 1.0  # for rank/main.py to write what its command left, once the command is dead


class Gang:
    """The ranks of a run as processes: one child each, or mpirun's one child for all of them.

    `wait` sleeps until a signal or so many seconds. The calling process is a subreaper: all of
    the run that lives is below it, orphans included.
    """

    def __init__(
        self,
        run_dir: Path,
        request: GangRequest,
        *,
        wait: Callable[[float], None],
        containers: Containers | None = None,
    ) -> None:
        self._run_dir = run_dir
        self._request = request
        self._wait = wait
        self._containers = containers
        self._self = read_process(os.getpid())
        self._living: dict[int, int] = {}
        self._ended: dict[int, tuple[int, float]] = {}
        self._awaited = frozenset(each.rank for each in request.ranks if each.awaited)
        self._helper: int | None = None
        self.is_helper_lost = False
        self.has_failure = False

    @property
    def are_living(self) -> bool:
        """Tell if some rank (or mpirun) that the run waits for is not over yet."""
        return any(rank in self._awaited for rank in self._living.values())

    def start(
        self, interpreter: str, environment: Mapping[str, str], rendezvous: Rendezvous
    ) -> None:
        """Start all ranks; they share the variables in `environment`."""
        self._helper = rendezvous.helper
        if self._request.launcher == "mpi":
            mpirun = str(Path(interpreter).with_name("mpirun"))
            self._spawn(0, [mpirun, *self._argv(interpreter)[1:]], environment)
            return
        argv = self._argv(interpreter)
        for each in self._request.ranks:
            self._spawn(
                each.rank, argv, {**environment, **each.env, **rendezvous.of_rank(each.rank)}
            )

    def _argv(self, interpreter: str) -> list[str]:
        return [interpreter if word == "python" else word for word in self._request.argv]

    def _spawn(self, rank: int, argv: list[str], environment: Mapping[str, str]) -> None:
        if self._containers is not None:
            self._living[self._containers.start(str(rank), argv, environment)] = rank
            return
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        pid = os.posix_spawn(argv[0], argv, environment, file_actions=actions, setsid=True)
        self._living[pid] = rank

    def reap(self) -> None:
        """Reap children and note which ranks ended; their orphans are just reaped."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._living:
                rank = self._living.pop(pid)
                self._ended[rank] = (status, time.monotonic())
                self.has_failure = self.has_failure or status != 0
            elif pid == self._helper:
                self._helper = None
                self.is_helper_lost = True

    def reports(self) -> list[RankReport]:
        """Give the state of each rank, in order."""
        return [self._report(each.rank, each.node) for each in self._request.ranks]

    def _report(self, rank: int, node: int) -> RankReport:
        try:
            # The job's own program may have put anything there.
            report = read_json(self._run_dir / "ranks" / f"{rank:05d}.json", RankReport)
        except (OSError, msgspec.DecodeError):
            report = RankReport(rank=rank, node=node)
        if report.ended_s is None and rank in self._ended and self._request.launcher != "mpi":
            # rank/main.py itself was killed, or could not write: its own end is what is known.
            status, when_s = self._ended[rank]
            code = os.waitstatus_to_exitcode(status)
            return msgspec.structs.replace(
                report,
                exit_code=code if code >= 0 else None,
                signal=-code if code < 0 else None,
                exited_s=when_s,
                ended_s=when_s,
            )
        return report

    # --- ending them -----------------------------------------------------------------------

    def stop(self, grace_s: float) -> None:
        """End all that is left: asked first, then killed; nothing of the run lives after this."""
        self.reap()
        for process in self._to_ask():
            send(process, signal.SIGTERM)
            send(process, signal.SIGCONT)
        self._wait_for_ends(grace_s)
        self.clean_up()

    def _to_ask(self) -> list[Process]:
        """Choose the processes to ask: each rank/main.py, or mpirun if none is known yet.

        mpirun would pass the signal on, but kill its ranks within seconds of that.
        """
        # Children that were not waited for: their ids are still theirs.
        children = [each for each in map(read_process, self._living) if each is not None]
        if self._request.launcher != "mpi":
            return children
        own = {each.pid: each for each in descendants(os.getpid(), read_table())}
        ranks = [own[each.pid] for each in self.reports() if each.pid in own]
        return ranks or children

    def abort(self, grace_s: float) -> None:
        """Have each command write the stacks of all its threads (faulthandler), and end."""
        # The records lie where the job's own program may write: they are believed only about
        # processes that are known to be the run's.
        # Those of docker are below its daemon, and bear the run's mark.
        own = {each.pid: each for each in leftovers(self._self, self._run_dir)}
        hanging = [each for each in self.reports() if each.ended_s is None]
        groups = [each.child for each in hanging if each.child in own and _leads(each.child)]
        if ask_for_records(str(self._run_dir), [each.rank for each in hanging]):
            self._wait_for_ends(WRITING_S)
        # All are stopped first: the end of one would wake those that wait for it, and they would
        # die of that before they have shown where they waited.
        for number in (signal.SIGSTOP, signal.SIGABRT, signal.SIGCONT):
            for group in groups:
                send_to_group(group, number)
        for report in hanging:
            if report.pid in own:
                send(own[report.pid], signal.SIGCONT)
        self._wait_for_ends(grace_s)
        self.clean_up()

    def clean_up(self) -> None:
        """Kill every process of the run; commands first, so that rank/main.py can write their end."""
        if self._living:
            spare = {report.pid for report in self.reports()} | set(self._living)
            if self._helper is not None:
                spare.add(self._helper)
            kill_leftovers(self._self, self._run_dir, spare=spare, timeout_s=LAST_WORDS_S)
            self._wait_for_ends(LAST_WORDS_S)
        self._helper = None  # from here on its end is no loss
        kill_leftovers(self._self, self._run_dir, timeout_s=KILL_TIMEOUT_S)
        if self._containers is not None:
            self._containers.remove()
        self.reap()

    def _wait_for_ends(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        self.reap()
        while self._living and (left_s := deadline - time.monotonic()) > 0:
            self._wait(left_s)
            self.reap()


def _leads(pid: int) -> bool:
    """Tell whether a process leads a group of its own."""
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False
