"""Names the rank that failed first, and why, or the rank that hangs. Pure: from reports to a verdict.

When one rank of a gang dies, the others die of it: their connections close, their collectives
time out, and often they are the louder ones. So the order of exits says little. What counts is
the order of evidence (the first line of the traceback that ended a rank, or its exit), and
whether the evidence is only about a peer that went away.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct, structs

from jobs.contracts.spec import RankError
from jobs.runs.hanging import Sign, is_in_collective, name_hanging

HANG_EXIT_CODE = 124  # as of timeout(1): a limit of the job ended it
PREEMPTED_EXIT_CODE = 75
TEARDOWN_S = 30.0  # a traceback older than this at the rank's end was not its end

PEER_LOSS = re.compile(
    r"HorovodInternalError|[Cc]onnection (was )?(closed|reset|refused|aborted)|closed by peer"
    r"|Connection(Reset|Refused|Aborted)Error|Broken ?[Pp]ipe|Socket (closed|Timeout)"
    r"|remote process exited|NCCL communicator was aborted|ncclRemoteError|Timed out waiting"
    r"|recvValue failed|sendBytes failed|failed to recv|DistNetworkError|DistStoreError"
    r"|connectFullMesh failed|timed out after \d+ ?(ms|seconds)|MPI_ABORT was invoked"
    r"|errors_impl\.(Unavailable|Aborted)Error|Collective ops is aborted by"
    r"|error: another rank cannot go on"
)
PREEMPTED = re.compile(r"^preempted: ", re.MULTILINE)
SAID = re.compile(r"^(?:error|preempted): (.+)$", re.MULTILINE)
DIVERGED = re.compile(r"^training has diverged: (?P<how>(?:.*? rank (?P<rank>\d+) )?.*)")
OUT_OF_MEMORY = re.compile(r"^(\S*\.)?(MemoryError|OutOfMemoryError)\b|out of memory|bad_alloc")
# A rank whose last line begins so lost something else than a peer: Horovod, torch and TensorFlow put
# a refused peer into errors of their own.
ELSEWHERE = re.compile(
    r"^ConnectionRefusedError\b"
    r"|^(subprocess|socket|ssl|http|urllib3?|requests|httpx|aiohttp|azure|botocore|redis|psycopg2?"
    r"|pymongo|paramiko|concurrent\.futures|mlflow|wandb|huggingface_hub)\."
)
UNSEEN_CPU = 0.3  # neither busy nor idle
LONGEST_MESSAGE, LONGEST_TRACEBACK = 3000, 64 << 10  # characters; a rank keeps to less by itself
MODULES = re.compile(r"\n+Extension modules: .*")  # the last line of faulthandler's report
NO_FRAME = "<no Python frame>"  # faulthandler's word for a main thread whose Python has ended
AT_EXIT = "after the script's end"  # what a message says of such a thread
# Words of ours in a message beside those of the rank.
NO_MESSAGE, BEFORE_THAT = "it left no message", "; before that, rank "
# The exception in an exception group, whose own last line is a frame (`+-----`).
GROUP = re.compile(r"^ *\| (?P<last>[A-Za-z_][\w.]*(: .*)?)\r?$", re.MULTILINE)
FRAME = re.compile(r'^[\s|]*File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)


class RankReport(Struct, frozen=True, kw_only=True):
    """`ranks/NNNNN.json`: the record that rank/main.py keeps of its rank.

    Times are of the monotonic clock; of Azure's nodes since the epoch (rank/azure_node.py).
    `hang_seconds` is the limit by which its node ended it (rank/hang.py), with what was seen of it before.
    """

    rank: int
    node: int = 0
    host: str = "localhost"
    pid: int = 0
    child: int = 0
    stage: str | None = None
    setup: str | None = None
    exit_code: int | None = None
    signal: Annotated[int, Meta(ge=1, le=64)] | None = None
    exited_s: float | None = None
    ended_s: float | None = None
    stopped_s: float | None = None
    output_closed_s: float | None = None
    out_of_memory: bool = False
    traceback: Annotated[str, Meta(pattern=r"\S")] | None = None
    traceback_s: float | None = None
    last_lines: str = ""
    log_error: str | None = None
    hang_seconds: float | None = None
    silent_seconds: float = 0.0
    was_stopped: bool = False

    @property
    def has_failed(self) -> bool:
        """Tell if the rank ended with another code than 0."""
        return bool(self.exit_code) or self.signal is not None

    @property
    def has_succeeded(self) -> bool:
        """Tell if the rank ended with 0."""
        return self.exit_code == 0

    @property
    def has_left_checkpoint(self) -> bool:
        """Tell if the rank left after a checkpoint, or was on its way out when its time was over.

        A framework can take seconds to leave on a busy machine.
        """
        was_late = self.signal is not None and self.stopped_s is not None
        return self.exit_code == PREEMPTED_EXIT_CODE or (
            was_late and PREEMPTED.search(self.last_lines) is not None
        )

    @property
    def evidence_s(self) -> float:
        """The time at which the failure first showed."""
        end_s = self.exited_s or self.ended_s or float("inf")
        if self.traceback_s is not None and end_s - self.traceback_s < TEARDOWN_S:
            return self.traceback_s
        return end_s

    @property
    def last_traceback(self) -> str | None:
        """Give the traceback that ended the rank; None where it went on for long, and wrote other lines, after it."""
        end_s = self.exited_s or self.ended_s
        if self.traceback is None or self.traceback_s is None or end_s is None:
            return self.traceback
        is_old = end_s - self.traceback_s >= TEARDOWN_S
        was_handled = is_old and _last_line(self.traceback) not in self.last_lines
        return None if was_handled else self.traceback

    @property
    def is_about_a_peer(self) -> bool:
        """Tell if the rank seems to have died of another one's death."""
        text = self.last_traceback or self.last_lines
        # A signal after it was told to stop was ours, and says nothing of why it had failed.
        is_own_end = self.signal in (None, signal.SIGABRT) or self.stopped_s is not None
        is_about_others = ELSEWHERE.match(_last_line(self.last_traceback)) is not None
        return is_own_end and not is_about_others and bool(PEER_LOSS.search(text))

    @property
    def shell_exit_code(self) -> int | None:
        """The exit code as a shell gives it: 128 + n for signal n."""
        return self.exit_code if self.signal is None else 128 + self.signal


def root_cause(reports: Sequence[RankReport], *, stopped_s: float | None) -> RankError | None:
    """Find the rank whose failure came first; None if none failed by itself.

    `stopped_s` is when the gang began to end the others: what shows later was done by that. Ranks
    that their nodes ended because the run hung failed together: the one that the others waited for counts.
    """
    if any(each.hang_seconds is not None for each in reports):
        return _ended_hanging([each for each in reports if each.hang_seconds is not None])
    failed = [each for each in reports if each.has_failed]
    own = [each for each in failed if _failed_by_itself(each, stopped_s)]
    if not own:
        return None
    first = min(own, key=lambda each: (each.is_about_a_peer, each.evidence_s))
    first = _diverged(own, first)
    error = _lost_by_all_others(reports) if first.is_about_a_peer else None
    if error is not None:
        return error
    error = describe(first)
    if first.is_about_a_peer:
        early = [
            each for each in reports if each.has_succeeded and each.evidence_s <= first.evidence_s
        ]
        if early:
            ranks = ", ".join(str(each.rank) for each in early)
            note = f"{error.message}{BEFORE_THAT}{ranks} had ended with exit code 0"
            return structs.replace(error, message=note)
    return error


def _diverged(failed: Sequence[RankReport], first: RankReport) -> RankReport:
    """Give the rank whose loss was not finite, if the first to end names it: all stop at one step."""
    whose = _whose_loss(first)
    return next((each for each in failed if each.rank == whose), first)


def _whose_loss(report: RankReport) -> int | None:
    """Read which rank's loss was no number, as this rank says."""
    found = DIVERGED.match(last_words(report))
    return int(found["rank"]) if found and found["rank"] else None


def _lost_by_all_others(reports: Sequence[RankReport]) -> RankError | None:
    """Find the one rank that complains of no peer while all others do, if it was on its way out.

    mpirun ends the others as soon as one has ended, also the guilty one that is slower to leave. A single
    witness is quoted: what it lost may be no rank.
    """
    silent = [each for each in reports if not (each.has_failed and each.is_about_a_peer)]
    if len(silent) != 1 or len(reports) < 2 or silent[0].stopped_s is None:
        return None
    if silent[0].last_traceback or (silent[0].exit_code and SAID.search(silent[0].last_lines)):
        return describe(silent[0])
    who, traceback = "all of them", None
    if len(reports) == 2:
        witness = describe(next(each for each in reports if each is not silent[0]))
        who, traceback = f"rank {witness.rank} ({witness.message})", witness.traceback
    return RankError(
        rank=silent[0].rank,
        host=silent[0].host,
        cause="left the others",
        message=f"{who} lost it; it was ended before it left by itself",
        traceback=traceback,
        exit_code=1,
    )


def _failed_by_itself(report: RankReport, stopped_s: float | None) -> bool:
    if stopped_s is not None and report.evidence_s > stopped_s:
        return False
    # mpirun ends its ranks by itself when one fails; rank/main.py notes when it was told to stop.
    return report.stopped_s is None or report.evidence_s < report.stopped_s


def is_conclusive(reports: Sequence[RankReport]) -> bool:
    """Tell whether some rank's failure so far is surely its own, so that no other need be waited for."""
    own = [each for each in reports if each.has_failed and not each.is_about_a_peer]
    return any(_whose_loss(each) in (None, each.rank) for each in own)


def is_leaving(reports: Sequence[RankReport]) -> bool:
    """Tell whether all that ended so far did so after a checkpoint, or with nothing left to do."""
    failed = [each for each in reports if each.has_failed]
    return bool(failed) and all(each.exit_code == PREEMPTED_EXIT_CODE for each in failed)


def why_it_left(reports: Sequence[RankReport], first: RankReport) -> str:
    """Name the rank that left after a checkpoint, and what it says of that (`preempted: ...`).

    Best one that was asked itself, else the first that left.
    """
    for each in reports:
        said = SAID.findall(each.last_lines) if each.exit_code == PREEMPTED_EXIT_CODE else []
        if said and "another rank" not in said[-1]:
            return f"rank {each.rank} left: {said[-1]}"
    return f"rank {first.rank} checkpointed and left (exit code {PREEMPTED_EXIT_CODE})"


def last_words(report: RankReport) -> str:
    """Give the last line of a rank that failed; empty if it wrote nothing.

    A line that says so itself (`error: ...`, as programs say what their user can mend) counts
    before what a framework grumbles about on its way out.
    """
    said = SAID.findall(report.last_lines)
    return said[-1] if said else _last_line(report.last_lines)


def describe(report: RankReport) -> RankError:
    """Say how a rank failed."""
    report = structs.replace(report, traceback=report.last_traceback)
    if report.stopped_s is not None and report.traceback and report.signal is not None:
        # It was on its way out with a traceback when it was told to stop.
        report = structs.replace(report, exit_code=1, signal=None)
    cause, message = _cause(report)
    traceback = MODULES.sub("", report.traceback) if report.traceback else None
    return RankError(
        rank=report.rank,
        host=report.host,
        cause=cause,
        message=message[:LONGEST_MESSAGE],
        traceback=traceback[-LONGEST_TRACEBACK:] if traceback else None,
        exit_code=report.shell_exit_code,
    )


def _last_line(text: str | None) -> str:
    last = "".join((text or "").strip().splitlines()[-1:])
    # A group of exceptions ends in the frame around them.
    group = GROUP.search(text or "") if last.lstrip().startswith("+-") else None
    return group["last"] if group else last


def _cause(report: RankReport) -> tuple[str, str]:
    code = report.shell_exit_code
    if report.stage == "setup" and report.setup:
        return "setup failed", f"`{report.setup}` gave exit code {code}"
    if report.out_of_memory:
        return "out of memory", "the kernel killed it (SIGKILL) because memory ran out"
    if report.traceback and not report.traceback.startswith("Fatal Python error"):
        last = _last_line(report.traceback)
        where = _place(report.traceback)
        cause = "out of memory" if OUT_OF_MEMORY.search(last) else "uncaught exception"
        if report.signal is None and code != 1:
            return f"exit code {code}", f"{last}{where}"
        return cause, f"{last}{where}"
    if report.signal is not None:
        name = signal_name(report.signal)
        where = _place(report.traceback) if report.traceback else ""
        what = signal.strsignal(report.signal) or name
        return f"killed by {name}", f"{what.lower()}{where}"
    said = last_words(report)
    if diverged := DIVERGED.match(said):
        return "diverged", diverged["how"]
    return f"exit code {code}", said or NO_MESSAGE


def words_in_log(error: RankError) -> str | None:
    """Give the words of a message that stand in a line of the rank's log; None where all are ours."""
    if error.traceback:
        last = _last_line(error.traceback)
        return last if last and error.message.startswith(last[:LONGEST_MESSAGE]) else None
    if error.cause.startswith("exit code ") or error.cause == "diverged":
        said = error.message.partition(BEFORE_THAT)[0]
        return said if said and said != NO_MESSAGE else None
    return None


def _place(traceback: str) -> str:
    """Name the innermost frame, which faulthandler puts first, Python last; or that none was left."""
    frames = FRAME.findall(traceback)
    if not frames:
        return f" {AT_EXIT}" if NO_FRAME in traceback else ""
    file, line = frames[0] if traceback.startswith("Fatal Python error") else frames[-1]
    return f" ({file.rpartition('/')[2]}:{line})"


def signal_name(number: int) -> str:
    """Name a signal: `SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def summary_line(error: RankError) -> str:
    """Write the first line of a failed run's summary: rank, host, cause."""
    who = "the gang" if error.rank is None else f"rank {error.rank}"
    return f"{who} on {error.host}: {error.cause}: {error.message}".splitlines()[0]


# --- Hangs -----------------------------------------------------------------------------------


def hang_error(report: RankReport, limit_s: float, why: str) -> RankError:
    """Give the verdict on a gang that stood still."""
    message = f"no output of any rank, no metrics and no checkpoint for {limit_s:g} s; {why}"
    where = _place(report.traceback) if report.traceback else ""
    return RankError(
        rank=report.rank,
        host=report.host,
        cause="hang",
        message=message + where,
        traceback=report.traceback,
        exit_code=HANG_EXIT_CODE,
    )


def _ended_hanging(reports: Sequence[RankReport]) -> RankError:
    """Name the rank that held up the others, by what nodes without a supervisor saw of theirs."""
    signs = [
        Sign(
            rank=each.rank,
            is_stopped=each.was_stopped,
            has_exited=False,
            has_closed_output=False,
            cpu=UNSEEN_CPU,
            silent_s=each.silent_seconds,
            is_in_collective=is_in_collective(each.traceback),
        )
        for each in reports
    ]
    rank, why = name_hanging(signs, "none")
    report = next(each for each in reports if each.rank == rank)
    return hang_error(report, report.hang_seconds or 0, why)


def stalled_error(report: RankReport) -> RankError:
    """Give the verdict on a stopped rank whose peers gave up waiting before the limit."""
    return RankError(
        rank=report.rank,
        host=report.host,
        cause="hang",
        message="its process is stopped (SIGSTOP); the others gave up waiting for it",
        traceback=report.traceback,
        exit_code=HANG_EXIT_CODE,
    )
