"""Messages in which the stand-in tells how a job ends: quoted from Azure, or guessed in the same style."""

from __future__ import annotations

from enum import StrEnum


class Quoted(StrEnum):
    """Messages whose words users have quoted (tests/golden/azure_messages)."""

    PREEMPTED = (
        "AzureMLCompute job failed. PreemptionError: Nodes of this job got pre-empted. Check if the "
        "run has failed or restarted. Reason: Received pre-emption warning signal"
    )
    IMAGE_PULL = (
        "AzureMLCompute job failed.\nFailedPullingImage: Unable to pull docker image\n"
        "\timageName: {image}\n\terror: Run docker command to pull public image failed with error: "
        "Error response from daemon: manifest unknown"
    )
    IMAGE_BUILD = (
        "Image build failed. For more details, check log file azureml-logs/20_image_build_log.txt."
    )
    QUOTA = (
        "Operation results in exceeding quota limits of Core. Maximum allowed: 0, Current in use: 0, "
        "Additional requested: {vcpus}."
    )


class Guessed(StrEnum):
    """Messages that nobody has quoted: see jobs/engines/azure_ml/states.py."""

    NODE_LOST = (
        "AzureMLCompute job failed. JobNodeLost: Node {node} of this job became unusable: lost "
        "contact with the node agent."
    )
    EXIT_CODE = (
        "Execution failed. User process 'bash' exited with status code {code}. Please check log file "
        "'{log}' for error details. Error: {tail}"
    )
    TIME_LIMIT = "The run exceeded its maximum duration."
    NO_DATA = "AzureMLCompute job failed. DataAccessError(NotFound): {uri}"
    # In the style of no text that anybody has quoted.
    WITHOUT_CODE = "The task ended unsuccessfully. See the logs of the task."
    WITHOUT_PULL = "The task could not be set up: its environment is not there."
    WITHOUT_LIMIT = "The task was stopped by a policy."
    # mpirun's own words, and Python's, in a guessed sentence.
    NO_SECOND_NODE = (
        "Execution failed. User process 'mpirun' exited with status code 1. Error: ORTE was unable "
        "to reliably start one or more daemons."
    )
    READ_ONLY = (
        "Execution failed. User process 'bash' exited with status code 1. Error: PermissionError: "
        "[Errno 13] Permission denied: '.trainyard/run'"
    )
