"""Print as JSON what azureml-core sends for jobs as its documentation has people write them, and for ours.

PYTHONPATH=WORKER_FOLDER python azureml_core_oracle.py FOLDER < CASES; CASES are one object by name,
what is printed two: [theirs, ours].
"""

import contextlib
import io
import json
import sys

import worker
from azureml._execution import _commands
from azureml.core import Environment, ScriptRunConfig
from azureml.core.runconfig import (
    Data,
    DataLocation,
    DataPath,
    DockerConfiguration,
    MpiConfiguration,
    PyTorchConfiguration,
    TensorflowConfiguration,
)
from azureml.core.script_run_config import _update_args_and_io, get_run_config_from_script_run
from azureml.data import OutputFileDatasetConfig

KINDS = {
    "mpi": MpiConfiguration,
    "pytorch": PyTorchConfiguration,
    "tensorflow": TensorflowConfiguration,
}


def build_theirs(folder, case):
    image = Environment(case["image_name"])
    image.docker.base_image = case["image"]
    image.python.user_managed_dependencies = True
    image.environment_variables = {}
    name, path = case["output"]
    output = OutputFileDatasetConfig(name=name, destination=("runs", path)).as_mount()
    limits = {"max_run_duration_seconds": case["lasts_s"]} if case["lasts_s"] else {}
    made = ScriptRunConfig(
        folder,
        command=[*case["command"], output, *case["input_words"]],
        compute_target=case["compute"],
        environment=image,
        distributed_job_config=KINDS[case["kind"]](*case["counts"]) if case["kind"] else None,
        docker_runtime_config=DockerConfiguration(use_docker=True, shm_size=case["shm_size"]),
        **limits,
    )
    made.run_config.environment_variables = case["variables"]
    made.run_config.data = {
        name: Data(
            data_location=DataLocation(data_path=DataPath("data", path)),
            create_output_directories=False,
            mechanism=mode,
            environment_variable_name=name,
        )
        for name, (path, mode) in case["inputs"].items()
    }
    return made


def body(made):
    config = get_run_config_from_script_run(made)
    _update_args_and_io(object(), config)
    # A command of words becomes one line.
    _commands._run_config_modification(config)
    return _commands._serialize_run_config_to_dict(config)


def main():
    cases = json.load(sys.stdin)
    with contextlib.redirect_stdout(io.StringIO()):
        folder = sys.argv[1]
        built = {
            name: [body(build_theirs(folder, case)), body(worker.make_script(folder, case["ours"]))]
            for name, case in cases.items()
        }
    print(json.dumps(built))


if __name__ == "__main__":
    main()
