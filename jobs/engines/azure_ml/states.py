"""Translate Azure ML's states of a job into ours, with the reason and the line that shows it (pure).

Azure ML's codes are coarse (`UserError` for a preempted node), so its words are read, too. They are
documented nowhere: beside each sign stands who has it, or that it is guessed. What no sign fits is shown
in Azure ML's own words, and not started again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from msgspec import Struct

from jobs.contracts.spec import RunState
from jobs.runs.failure import PREEMPTED_EXIT_CODE

Cause = Literal[
    "preemption",
    "node_failure",
    "quota",
    "image_pull",
    "image_build",
    "input",
    "time_limit",
    "program",
    "unknown",
]
STATES = {
    "NotStarted": RunState.QUEUED,
    "Scheduled": RunState.QUEUED,
    "Queued": RunState.QUEUED,
    "Unapproved": RunState.QUEUED,
    "Starting": RunState.PREPARING,
    "Provisioning": RunState.PREPARING,
    "Preparing": RunState.PREPARING,
    "Running": RunState.RUNNING,
    "Finalizing": RunState.RUNNING,
    "CancelRequested": RunState.RUNNING,
    "NotResponding": RunState.RUNNING,
    "Pausing": RunState.RUNNING,
    "Paused": RunState.RUNNING,
    "Completed": RunState.COMPLETED,
    "Failed": RunState.FAILED,
    "Canceled": RunState.CANCELLED,
}
# States that say more than ours.
_ODD = {
    "CancelRequested": "it is being cancelled",
    "NotResponding": "its nodes have not reported to Azure ML for a while",
    "Pausing": "Azure ML is pausing it",
    "Paused": "Azure ML has paused it",
    "Unapproved": "Azure ML waits until somebody approves it",
}
_SAYING: dict[Cause, str] = {
    "preemption": "Azure took a node away",
    "node_failure": "a node failed",
    "quota": "the quota is used up",
    "image_pull": "the image cannot be pulled",
    "image_build": "the image cannot be built",
    "input": "an input cannot be read",
    "time_limit": "limits.wall_clock",
}
# In this order: a preempted node is unusable, too.
_SIGNS: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    # PreemptionError: github.com/Azure/MachineLearningNotebooks/issues/1242. `preempted` is a node's
    # state in azure-ai-ml 1.35 (_restclient/arm_ml_service). Evicted: Azure's word for spot machines.
    ("preemption", re.compile(r"pre-?empt|evicted|eviction", re.IGNORECASE)),
    # Guessed.
    ("time_limit", re.compile(r"exceeded (its|the) (maximum|max)|JobTimeout|JobExceededMax")),
    # `QuotaExceeded`, "Quota exceeded for": azureml-core 1.61 (_common/_error_definition).
    ("quota", re.compile(r"quota|ClusterCoreQuota", re.IGNORECASE)),
    # "Image build failed. For more details": github.com/MG-Cafe/MLOps_Workshop/issues/8.
    ("image_build", re.compile(r"image ?build", re.IGNORECASE)),
    # "manifest unknown" is a registry's (OCI distribution specification, error codes); the others are
    # quoted in tests/golden/azure_messages, but for `image pull`.
    (
        "image_pull",
        re.compile(
            r"pull\w* (?:(?:the|docker|private|public) )*image|image ?pull|manifest unknown",
            re.IGNORECASE,
        ),
    ),
    # StreamAccess and "Cannot mount dataset" are quoted there, too; else guessed.
    ("input", re.compile(r"DataAccess|data-capability|\bStreamAccess|Cannot mount dataset")),
    # `unusable` is a node's state, heartbeats are those of `NotResponding` in azure-ai-ml 1.35
    # (operations/_run_history_constants.py); else guessed.
    (
        "node_failure",
        re.compile(
            r"node\b.*\b(unusable|lost|unhealthy|unreachable|rebooted)|NodeLost|lost contact"
            r"|NodeFailure|NodeUnusable|heartbeat",
            re.IGNORECASE,
        ),
    ),
)
# "non-zero exit status" is Python's subprocess; the others are guessed.
_EXIT_CODE = re.compile(
    r"(?:exited with (?:status )?code:?|exit(?:ed with)? ?code:?|non-zero exit status) ([0-9]{1,10})\b",
    re.IGNORECASE,
)
# Without an exit code: github.com/Azure/azure-cli-extensions/issues/2346.
_OF_PROGRAM = re.compile(r"(JobFailed: Submitted script|User program) failed with ")
_PREAMBLE = re.compile(r"^(AzureMLCompute job failed\.|Execution failed\.)\s*")
_LONGEST = 300


class Standing(Struct, frozen=True, kw_only=True):
    """State of a job. `evidence` is Azure ML's own line; `cause` is set if it failed."""

    state: RunState
    reason: str | None = None
    exit_code: int | None = None
    cause: Cause | None = None
    evidence: str | None = None


class JobError(Struct, frozen=True, kw_only=True):
    """Fields that are read of an error in the run history; further errors may be inside."""

    code: str = ""
    message: str = ""


def judge(
    status: str, *, error: Mapping[str, Any] | None = None, warnings: tuple[str, ...] = ()
) -> Standing:
    """Judge a job's state by its history; `error` is that of the run's details."""
    if status == "Failed":
        return _failed(_errors(error), warnings)
    if status == "Canceled":
        told = next((each for each in warnings if _cause_of(each) == "time_limit"), None)
        if told is not None:
            return _standing(RunState.FAILED, "time_limit", told)
        return Standing(state=RunState.CANCELLED)
    state = STATES.get(status)
    if state is None:
        # A state of a later Azure ML: it is not over, as far as this version knows.
        return Standing(state=RunState.RUNNING, reason=f"Azure ML says `{status}`")
    return Standing(state=state, reason=_ODD.get(status))


def why_it_waits(cluster: str, properties: Mapping[str, Any], *, is_building: bool) -> str | None:
    """Explain by its AmlCompute why a job does not start; None if nothing shows."""
    errors = [_inner(mapping(each)) for each in items(properties.get("errors"))]
    for error in errors:
        cause = _cause_of(f"{error.code} {error.message}")
        if cause == "quota":
            return f"{_SAYING['quota']}: {_line(error)}"
    if errors:
        return f"cluster `{cluster}` cannot start nodes: {_line(errors[0])}"
    if is_building:
        return "its image is being built"
    counts, scale = mapping(properties.get("nodeStateCounts")), properties.get("scaleSettings")
    most, busy = _count(mapping(scale), "maxNodeCount"), _count(counts, "runningNodeCount")
    if most == 0:
        return f"cluster `{cluster}` may have no node: its maximum is 0"
    if busy >= most:
        return f"all {most} nodes of cluster `{cluster}` are busy"
    if unusable := _count(counts, "unusableNodeCount"):
        return f"{unusable} of the nodes of cluster `{cluster}` cannot be used"
    if starting := _count(counts, "preparingNodeCount"):
        return f"{starting} nodes of cluster `{cluster}` are being started"
    if properties.get("allocationState") == "Resizing":
        return f"nodes of cluster `{cluster}` are being started"
    return None


def _failed(errors: list[JobError], warnings: tuple[str, ...]) -> Standing:
    for error in errors:
        cause = _cause_of(f"{error.code} {error.message}")
        code = _exit_code(error.message)
        # What a program wrote is quoted in the message, and may speak of anything.
        if code is not None:
            return _exited(code, error)
        line = _line(error)
        if _OF_PROGRAM.match(line):
            return Standing(state=RunState.FAILED, cause="program", reason=line, evidence=line)
        if cause is not None:
            state = RunState.PREEMPTED if cause == "preemption" else RunState.FAILED
            return _standing(state, cause, line)
    told = next((each for each in warnings if _cause_of(each) == "time_limit"), None)
    if told is not None:
        return _standing(RunState.FAILED, "time_limit", told)
    if not errors:
        return Standing(state=RunState.FAILED, reason="Azure ML gives no reason", cause="unknown")
    line = _line(errors[0])
    return Standing(state=RunState.FAILED, reason=line, cause="unknown", evidence=line)


def _exited(code: int, error: JobError) -> Standing:
    line = _line(error)
    if code == PREEMPTED_EXIT_CODE:
        reason = f"it left with a checkpoint, told to by a signal (exit code {code})"
        return Standing(
            state=RunState.PREEMPTED,
            reason=reason,
            exit_code=code,
            cause="preemption",
            evidence=line,
        )
    return Standing(
        state=RunState.FAILED,
        reason=f"exit code {code}",
        exit_code=code,
        cause="program",
        evidence=line,
    )


def _standing(state: RunState, cause: Cause, line: str) -> Standing:
    reason = f"{_SAYING[cause]}: {line}"
    return Standing(state=state, reason=reason, cause=cause, evidence=line)


def _cause_of(text: str) -> Cause | None:
    return next((cause for cause, sign in _SIGNS if sign.search(text)), None)


def mapping(value: Any) -> Mapping[str, Any]:
    """Give an object of an answer; an empty one for any other value."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Any]:
    """Give a list of an answer; an empty one for any other value."""
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


def text_in(found: Mapping[str, Any], key: str) -> str:
    """Give a text of an answer's object; an empty one where there is none."""
    value = found.get(key)
    return value if isinstance(value, str) else ""


def _count(found: Mapping[str, Any], key: str) -> int:
    value = found.get(key)
    return value if isinstance(value, int) else 0


def _errors(error: Mapping[str, Any] | None) -> list[JobError]:
    """List the error and those inside it, the innermost last."""
    found: list[JobError] = []
    inner = mapping(error)
    while inner:
        body = mapping(inner.get("error")) or inner
        found.append(_inner(body))
        found += [_inner(mapping(each)) for each in items(body.get("details"))]
        inner = mapping(body.get("innerError"))
    return [each for each in found if each.code or each.message]


def _inner(error: Mapping[str, Any]) -> JobError:
    body = mapping(error.get("error")) or error
    return JobError(code=text_in(body, "code"), message=text_in(body, "message"))


def _line(error: JobError) -> str:
    lines = _PREAMBLE.sub("", error.message.strip()).splitlines()
    line = lines[0].strip() if lines else error.code
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _exit_code(message: str) -> int | None:
    found = _EXIT_CODE.search(message)
    return int(found[1]) if found else None
