"""Azure ML's words about a job, as states of ours.

Words that somebody has quoted are in test_public_messages.py; those here are the stand-in's, which
are guessed in their style, where a test's name says so. That no state of the service is missing here is
held by tests/integration/azureml/test_known_states.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from jobs.contracts.spec import RunState
from jobs.engines.azure_ml.states import Standing, judge, why_it_waits


def error(message: str, code: str = "UserError") -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "details": [], "innerError": None}}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("NotStarted", RunState.QUEUED),
        ("Scheduled", RunState.QUEUED),
        ("Queued", RunState.QUEUED),
        ("Starting", RunState.PREPARING),
        ("Provisioning", RunState.PREPARING),
        ("Preparing", RunState.PREPARING),
        ("Running", RunState.RUNNING),
        ("Finalizing", RunState.RUNNING),
        ("Completed", RunState.COMPLETED),
        ("Canceled", RunState.CANCELLED),
    ],
)
def test_plain_states_have_no_reason(status: str, expected: RunState) -> None:
    assert judge(status) == Standing(state=expected)


@pytest.mark.parametrize(
    ("status", "state", "expected"),
    [
        ("CancelRequested", RunState.RUNNING, "it is being cancelled"),
        ("NotResponding", RunState.RUNNING, "its nodes have not reported to Azure ML for a while"),
        ("Pausing", RunState.RUNNING, "Azure ML is pausing it"),
        ("Paused", RunState.RUNNING, "Azure ML has paused it"),
        ("Unapproved", RunState.QUEUED, "Azure ML waits until somebody approves it"),
        ("Unknown", RunState.RUNNING, "Azure ML says `Unknown`"),
        ("Hibernating", RunState.RUNNING, "Azure ML says `Hibernating`"),
    ],
)
def test_odd_states_go_on_and_say_so(status: str, state: RunState, expected: str) -> None:
    assert judge(status) == Standing(state=state, reason=expected)


# github.com/Azure/MachineLearningNotebooks/issues/1242
PREEMPTED = (
    "AzureMLCompute job failed. PreemptionError: Nodes of this job got pre-empted. Check if the "
    "run has failed or restarted. Reason: Received pre-emption warning signal"
)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param(
            error(PREEMPTED),
            Standing(
                state=RunState.PREEMPTED,
                cause="preemption",
                reason=f"Azure took a node away: {PREEMPTED.partition('failed. ')[2]}",
                evidence=PREEMPTED.partition("failed. ")[2],
            ),
            id="preempted",
        ),
        pytest.param(
            error("AzureMLCompute job failed.\nJobNodeLost: Node x became unusable", "SystemError"),
            Standing(
                state=RunState.FAILED,
                cause="node_failure",
                reason="a node failed: JobNodeLost: Node x became unusable",
                evidence="JobNodeLost: Node x became unusable",
            ),
            id="node-lost",
        ),
        pytest.param(
            error(
                "Execution failed. User process 'python' exited with status code 3. Please check "
                "log file 'user_logs/std_log_process_0.txt'. Error: node lost its quota, preempted"
            ),
            Standing(
                state=RunState.FAILED,
                cause="program",
                exit_code=3,
                reason="exit code 3",
                evidence=(
                    "User process 'python' exited with status code 3. Please check log file "
                    "'user_logs/std_log_process_0.txt'. Error: node lost its quota, preempted"
                ),
            ),
            id="a-program-may-say-anything",
        ),
        pytest.param(
            error("User program failed with RuntimeError: node lost, its quota was preempted"),
            Standing(
                state=RunState.FAILED,
                cause="program",
                reason="User program failed with RuntimeError: node lost, its quota was preempted",
                evidence="User program failed with RuntimeError: node lost, its quota was preempted",
            ),
            id="a-program-may-say-anything-without-a-code",
        ),
        pytest.param(
            error("Execution failed. User process 'bash' exited with status code 75."),
            Standing(
                state=RunState.PREEMPTED,
                cause="preemption",
                exit_code=75,
                reason="it left with a checkpoint, told to by a signal (exit code 75)",
                evidence="User process 'bash' exited with status code 75.",
            ),
            id="left-with-checkpoint",
        ),
        pytest.param(
            {
                "error": {
                    "code": "SystemError",
                    "message": "",
                    "innerError": {"code": "NodePreempted", "message": "The node was evicted."},
                }
            },
            Standing(
                state=RunState.PREEMPTED,
                cause="preemption",
                reason="Azure took a node away: The node was evicted.",
                evidence="The node was evicted.",
            ),
            id="said-inside",
        ),
        pytest.param(
            error("Something new."),
            Standing(
                state=RunState.FAILED,
                cause="unknown",
                reason="Something new.",
                evidence="Something new.",
            ),
            id="unknown",
        ),
        pytest.param(
            None,
            Standing(state=RunState.FAILED, cause="unknown", reason="Azure ML gives no reason"),
            id="silent",
        ),
    ],
)
def test_failures_name_cause_and_evidence_as_the_stand_in_says(
    told: dict[str, Any] | None, expected: Standing
) -> None:
    assert judge("Failed", error=told) == expected


def test_a_job_that_azure_ended_for_its_time_limit_has_failed_as_the_stand_in_says() -> None:
    warning = "The run exceeded its maximum duration."
    assert judge("Canceled", warnings=("odd", warning)) == Standing(
        state=RunState.FAILED,
        cause="time_limit",
        reason=f"limits.wall_clock: {warning}",
        evidence=warning,
    )


QUOTA = {"error": {"code": "ClusterCoreQuotaReached", "message": "Maximum allowed: 0."}}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"errors": [QUOTA]}, "the quota is used up: Maximum allowed: 0."),
        (
            {"errors": [{"error": {"code": "AllocationFailed", "message": "No capacity."}}]},
            "cluster `gpu` cannot start nodes: No capacity.",
        ),
        (
            {"scaleSettings": {"maxNodeCount": 0}},
            "cluster `gpu` may have no node: its maximum is 0",
        ),
        (
            {"scaleSettings": {"maxNodeCount": 2}, "nodeStateCounts": {"runningNodeCount": 2}},
            "all 2 nodes of cluster `gpu` are busy",
        ),
        (
            {"scaleSettings": {"maxNodeCount": 2}, "nodeStateCounts": {"preparingNodeCount": 1}},
            "1 nodes of cluster `gpu` are being started",
        ),
        (
            {
                "scaleSettings": {"maxNodeCount": 2},
                "nodeStateCounts": {"unusableNodeCount": 1, "preparingNodeCount": 1},
            },
            "1 of the nodes of cluster `gpu` cannot be used",
        ),
        ({"scaleSettings": {"maxNodeCount": 2}}, None),
    ],
)
def test_a_waiting_job_says_what_for_as_the_stand_in_says(
    properties: dict[str, Any], expected: str | None
) -> None:
    assert why_it_waits("gpu", properties, is_building=False) == expected


def test_a_waiting_job_may_wait_for_its_image() -> None:
    assert why_it_waits("gpu", {}, is_building=True) == "its image is being built"
