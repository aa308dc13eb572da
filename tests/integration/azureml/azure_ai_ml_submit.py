"""Submits jobs as azure-ai-ml's YAML describes them; prints what was refused, by the YAML's name.

python azure_ai_ml_submit.py WORKSPACE_ID YAML...
"""

import json
import sys
from pathlib import Path

from azure.ai.ml import MLClient, load_job
from azure.core.exceptions import HttpResponseError
from azure.identity import DefaultAzureCredential


def main() -> None:
    parts = sys.argv[1].split("/")
    client = MLClient(DefaultAzureCredential(), parts[2], parts[4], parts[-1])
    refused: dict[str, str] = {}
    for path in map(Path, sys.argv[2:]):
        try:
            client.jobs.create_or_update(load_job(path))
        except HttpResponseError as error:
            refused[path.stem] = error.error.message
    print(json.dumps(refused))
    sys.exit(bool(refused))


if __name__ == "__main__":
    main()
