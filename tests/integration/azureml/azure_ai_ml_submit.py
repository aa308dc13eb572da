"""Submits jobs as azure-ai-ml's YAML describes them; prints their names.

python azure_ai_ml_submit.py WORKSPACE_ID YAML...
"""

import sys

from azure.ai.ml import MLClient, load_job
from azure.identity import DefaultAzureCredential


def main() -> None:
    parts = sys.argv[1].split("/")
    client = MLClient(DefaultAzureCredential(), parts[2], parts[4], parts[-1])
    print(*[client.jobs.create_or_update(load_job(path)).name for path in sys.argv[2:]])


if __name__ == "__main__":
    main()
