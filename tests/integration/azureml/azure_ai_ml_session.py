"""A session with azure-ai-ml, from connecting to cancelling; prints what it saw as JSON.

python azure_ai_ml_session.py WORKSPACE_ID COMPUTE CODE DOWNLOADS SHOWN

The first job ends when SHOWN is there: it is made once a line of the job is shown.
"""

import contextlib
import json
import sys
from pathlib import Path

from azure.ai.ml import MLClient, MpiDistribution, command
from azure.ai.ml.entities import AmlCompute, Environment
from azure.identity import DefaultAzureCredential
from screen import Screen


def main() -> None:
    workspace_id, compute, code, downloads, shown = sys.argv[1:]
    parts = workspace_id.split("/")
    client = MLClient(DefaultAzureCredential(), parts[2], parts[4], parts[-1])

    def make(name: str, waits_for: str) -> object:
        return command(
            name=name,
            code=code,
            command=f"python train.py {waits_for}",
            environment=Environment(image="registry/pytorch:1"),
            environment_variables={"GREETING": "hello"},
            compute=compute,
            instance_count=2,
            distribution=MpiDistribution(process_count_per_instance=1),
            experiment_name="oracle",
            tags={"made": "by-sdk"},
        )

    seen: dict[str, object] = {"workspace": client.workspaces.get(parts[-1]).id}
    seen["first"] = client.jobs.create_or_update(make("sdk-first", shown)).status
    streamed = Screen(shown)
    with contextlib.redirect_stdout(streamed):
        client.jobs.stream("sdk-first")
    seen["streamed"] = [line for line in streamed.getvalue().splitlines() if "rank" in line]
    seen["listed"] = [job.name for job in client.jobs.list()]
    client.jobs.download("sdk-first", download_path=downloads, all=True)
    root = Path(downloads, "artifacts")
    found = sorted(path for path in root.rglob("*") if path.is_file())
    seen["downloaded"] = {path.relative_to(root).as_posix(): path.read_text() for path in found}
    # A folder that has not changed is not sent again.
    client.jobs.create_or_update(make("sdk-second", "never"))
    client.jobs.begin_cancel("sdk-second").result()
    seen["statuses"] = [client.jobs.get(name).status for name in ("sdk-first", "sdk-second")]
    client.compute.begin_create_or_update(
        AmlCompute(name=compute, size="Standard_DS3_v2", min_instances=1, max_instances=3)
    ).result()
    seen["computes"] = [
        [each.name, each.min_instances, each.max_instances] for each in client.compute.list()
    ]
    seen["nodes"] = len(list(client.compute.list_nodes(compute)))
    seen["usages"] = len(list(client.compute.list_usage(location="westeurope")))
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
