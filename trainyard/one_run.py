"""One run, as an object: its state, figures and lines, and how it shows itself in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.calling import call, heard

if TYPE_CHECKING:
    from pandas import DataFrame

    from jobs.contracts.spec import LogLine, RunStatus

# Between two looks at a run that is on.
PAUSE_S = 1.0


class Run:
    """A run of a stack, or of an environment file, by its id, a beginning of it, or `last`.

    Every method asks anew. Raises NotFound, a LaunchError, where there is no such run.
    """

    def __init__(
        self, run: str = "last", *, stack: str | None = None, env: str | PathLike[str] | None = None
    ) -> None:
        from jobs.commands import options

        with heard():
            environment = options.open_environment(
                stack or options.usual_stack(), Path(env) if env is not None else None
            )
            self._engine, self._handle = options.open_run(run, environment)
        self._where = {"stack": stack} if env is None else {"env": env}
        self.id = self._handle.id

    def __repr__(self) -> str:
        """Say which run it is, and its state."""
        return f"<Run {self.id} {self.state}>"

    def _repr_html_(self) -> str:
        from trainyard.shown import page_of

        with heard():
            return page_of(self._engine, self._handle)

    def status(self) -> RunStatus:
        """Give its state with times, size and reason (docs/run-directory.md)."""
        with heard():
            return self._engine.store.status(self._handle)

    @property
    def state(self) -> str:
        """Its state's word: queued, preparing, running, completed, failed, cancelled, ..."""
        return self.status().state.value

    @property
    def is_over(self) -> bool:
        """Whether it has ended, however."""
        return self.status().state.is_terminal()

    def metrics(self) -> list[dict[str, Any]]:
        """Give every metric that was written: name, value, step, epoch and split, in order."""
        import msgspec

        from jobs.runs.metrics import read_metrics

        with heard():
            self._engine.store.bring(self._handle)
            return msgspec.to_builtins(read_metrics(Path(self._handle.run_dir, "metrics.jsonl")))

    def frame(self) -> DataFrame:
        """Give the metrics as a table of pandas: a row each, the columns those of `metrics`."""
        from pandas import DataFrame

        columns = ["split", "name", "step", "epoch", "value", "goal"]
        return DataFrame(self.metrics(), columns=columns)

    def logs(
        self,
        *,
        follow: bool = False,
        rank: int | str | None = None,
        grep: str | None = None,
        since: str | None = None,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """Yield the lines of its ranks with `ts`, `rank` and `text`; with `follow` until its end.

        The arguments are those of `launch logs`.
        """
        from jobs.launching.follow import lines_to_the_end
        from jobs.runs.logs import parse_pattern, parse_ranks, since_time

        status = self.status()
        num_logs = self._engine.store.record(self._handle).plan.spec.num_processes
        ranks = None if rank is None else parse_ranks(str(rank), num_logs)
        filters: dict[str, Any] = {
            "since": None if since is None else since_time(since, time.time()),
            "tail": tail,
            "grep": parse_pattern(grep),
        }
        if follow and not status.state.is_terminal():
            lines = lines_to_the_end(self._engine, self._handle, ranks, **filters)
        else:
            lines = self._engine.logs(self._handle, ranks, follow=False, **filters)
        while True:
            with heard():  # not while the caller has the line
                line = next(lines, None)
            if line is None:
                return
            yield line

    def wait(self, timeout: str | float | None = None) -> Run:
        """Wait for its end, or so long (seconds, or `10m`), and give it back; `state` tells which."""
        limit = [] if timeout is None else [f"--timeout={timeout}"]
        call(["wait", "--json", *limit, *self._words()])
        return self

    def follow(self) -> None:
        """Show it until it is over: live in a notebook's cell, elsewhere its lines.

        Interrupting the cell, or Ctrl-C, detaches: the run goes on.
        """
        try:
            if _is_notebook():
                self._follow_in_cell()
            else:
                for line in self.logs(follow=True):
                    print(f"[{line.rank}] {line.text}")  # noqa: T201 - that is what was asked for
        except KeyboardInterrupt:
            print(f"detached; {self.id} goes on", file=sys.stderr)  # noqa: T201

    def _follow_in_cell(self) -> None:
        display: Any = import_module("IPython.display").display
        shown = display(self, display_id=True)
        while not self.is_over:
            time.sleep(PAUSE_S)
            shown.update(self)
        shown.update(self)

    def fetch(self, into: str | PathLike[str] | None = None) -> Path:
        """Download outputs, logs and metrics; gives the folder (default: `./ID`)."""
        words = [] if into is None else [f"--into={Path(into)}"]
        return Path(call(["fetch", *words, *self._words()]))

    def cancel(self) -> Run:
        """End it, with a checkpoint where its program writes one."""
        call(["cancel", *self._words()])
        return self

    def show(self) -> dict[str, Any]:
        """Give what `launch show --json` tells: attempts, ranks, figures, cost, places."""
        return call(["show", "--json", *self._words()])

    def report(self, output: str | PathLike[str] | None = None) -> dict[str, Any]:
        """Give its final figures, and draw its curves to `output` (`picture` says where)."""
        words = [] if output is None else [f"--output={Path(output)}"]
        return call(["report", "--json", *words, *self._words()])

    def rerun(self, **changes: Any) -> Run:
        """Start it again; `resume=True` goes on from its newest checkpoint (`trainyard.rerun`)."""
        from trainyard.verbs import make

        return make("rerun")(self.id, **self._where, **changes)

    def _words(self) -> list[str]:
        named = [f"--{name}={value}" for name, value in self._where.items() if value is not None]
        return [*named, self.id]


def _is_notebook() -> bool:
    """Whether a kernel runs this, whose cells show HTML."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")
