"""A session with azureml-core, from connecting to cancelling; prints what it saw as JSON.

python azureml_core_session.py WORKSPACE_ID COMPUTE CODE DOWNLOADS SHOWN

The first job ends when SHOWN is there: it is made once a line of the job is shown.
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

from azureml.core import Environment, Experiment, Run, ScriptRunConfig, Workspace
from azureml.core.authentication import ServicePrincipalAuthentication
from azureml.core.runconfig import MpiConfiguration
from screen import Screen


def main() -> None:
    workspace_id, compute, code, downloads, shown = sys.argv[1:]
    parts = workspace_id.split("/")
    names = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
    workspace = Workspace.get(
        parts[-1],
        subscription_id=parts[2],
        resource_group=parts[4],
        auth=ServicePrincipalAuthentication(*(os.environ[name] for name in names)),
    )
    environment = Environment("pytorch")
    environment.docker.base_image = "registry/pytorch:1"
    environment.python.user_managed_dependencies = True

    def make(waits_for: str) -> ScriptRunConfig:
        made = ScriptRunConfig(
            code,
            script="train.py",
            arguments=[waits_for],
            compute_target=compute,
            environment=environment,
            distributed_job_config=MpiConfiguration(process_count_per_node=1, node_count=2),
        )
        made.run_config.environment_variables = {"GREETING": "hello"}
        return made

    experiment = Experiment(workspace, "oracle")
    first = experiment.submit(make(shown), tags={"made": "by-sdk"})
    streamed = Screen(shown)
    with contextlib.redirect_stdout(streamed):
        first.wait_for_completion(show_output=True)
    first.download_files(output_directory=downloads)
    found = sorted(path for path in Path(downloads).rglob("*") if path.is_file())
    second = experiment.submit(make("never"))
    second.cancel()
    while second.get_status() not in {"Canceled", "Completed", "Failed"}:
        time.sleep(0.05)
    seen = {
        "datastore": workspace.get_default_datastore().name,
        "computes": [[name, each.vm_size] for name, each in workspace.compute_targets.items()],
        "streamed": [line for line in streamed.getvalue().splitlines() if "rank" in line],
        "files": sorted(first.get_file_names()),
        "downloaded": {path.relative_to(downloads).as_posix(): path.read_text() for path in found},
        "statuses": [first.get_status(), second.get_status()],
        "tags": first.get_tags(),
        "logs": sorted(first.get_details()["logFiles"]),
        "runs": [run.id == first.id for run in experiment.get_runs()],
        "again": Run.get(workspace, first.id).get_status(),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
