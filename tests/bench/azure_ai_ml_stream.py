"""Follows a job with azure-ai-ml's own `jobs.stream`: python azure_ai_ml_stream.py WORKSPACE_ID JOB."""

from __future__ import annotations

import sys

from azure.ai.ml import MLClient  # type: ignore[import-not-found]
from azure.identity import DefaultAzureCredential


def main() -> None:
    workspace_id, job = sys.argv[1:]
    parts = workspace_id.split("/")
    client = MLClient(DefaultAzureCredential(), parts[2], parts[4], parts[8])
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    client.jobs.stream(job)


if __name__ == "__main__":
    main()
