"""Holds a document of each format that `launch import` reads beside Batch AI's, with the keys that have equals."""

from __future__ import annotations

from typing import Any

REMOTE = "ghcr.io/team/train:1"
TASKS: dict[str, dict[str, Any]] = {
    "aml.yaml": {
        "$schema": "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json",
        "type": "command",
        "name": "digits",
        "display_name": "Digits",
        "description": "a job",
        "experiment_name": "tries",
        "command": "python train.py --data ${{inputs.digits}} --lr ${{inputs.lr}} --out ${{outputs.model}}",
        "code": "src",
        "environment": "azureml:pytorch@latest",
        "environment_variables": {"EPOCHS": 3, "HF_TOKEN": "hf_abcdefghijklmnopqrstuv"},
        "inputs": {
            "lr": 0.1,
            "digits": {"type": "uri_folder", "path": "azureml:digits:1", "mode": "ro_mount"},
        },
        "outputs": {"model": {"type": "uri_folder", "mode": "rw_mount", "path": "azureml://x"}},
        "compute": "azureml:gpu",
        "distribution": {"type": "pytorch", "process_count_per_instance": 2},
        "resources": {
            "instance_count": 2,
            "instance_type": "Standard_NC6",
            "shm_size": "8g",
            "docker_args": "--ipc host",
        },
        "limits": {"timeout": 3600},
        "identity": {"type": "managed"},
        "services": {"my_ssh": {"type": "ssh"}},
        "tags": {"team": "vision"},
    },
    "train.runconfig": {
        "script": "train.py",
        "arguments": ["--lr", 0.1],
        "target": "gpu",
        "framework": "PyTorch",
        "communicator": "Gloo",
        "nodeCount": 2,
        "maxRunDurationSeconds": 600,
        "environment": {
            "name": "mine",
            "environmentVariables": {"EPOCHS": "3"},
            "python": {"userManagedDependencies": False, "condaDependencies": {"channels": ["x"]}},
            "docker": {
                "enabled": True,
                "baseImage": "mcr.microsoft.com/azureml/base:1",
                "shmSize": "2g",
                "baseImageRegistry": {"address": "r", "username": "u", "password": "p"},
            },
        },
        "pytorch": {"communicationBackend": "gloo", "processCount": 4},
        "mpi": {"processCountPerNode": 1},
        "tensorflow": {"workerCount": 1, "parameterServerCount": 1},
        "spark": {"configuration": {"spark.app.name": "x"}},
        "history": {"outputCollection": True},
        "dataReferences": {"digits": {"dataStoreName": "x", "mode": "mount"}},
        "amlcompute": {"vmSize": "Standard_NC6"},
    },
    "sky.yaml": {
        "name": "sky",
        "workdir": ".",
        "num_nodes": 2,
        "resources": {"accelerators": "A100:8", "image_id": f"docker:{REMOTE}", "use_spot": True},
        "envs": {"EPOCHS": 3},
        "secrets": {"WANDB_API_KEY": "0123456789abcdef"},
        "file_mounts": {"/data": "s3://bucket/data"},
        "volumes": {"/mnt": "volume"},
        "setup": "pip install x",
        "run": "python train.py --node $SKYPILOT_NODE_RANK",
        "service": {"replicas": 1},
    },
    "dstack.yml": {
        "type": "task",
        "name": "ds",
        "image": REMOTE,
        "nodes": 2,
        "env": ["EPOCHS=3", "HF_TOKEN"],
        "commands": ["pip install x", "python train.py"],
        "resources": {"gpu": "24GB"},
        "python": "3.11",
        "ports": [6006],
        "spot_policy": "auto",
        "max_duration": "2h",
    },
    "appdef.yaml": {
        "name": "app",
        "roles": [
            {
                "name": "trainer",
                "image": REMOTE,
                "entrypoint": "python",
                "args": ["train.py", "--rank", "${replica_id}", "--note", "a b"],
                "env": {"EPOCHS": "3"},
                "num_replicas": 2,
                "max_retries": 1,
                "retry_policy": "APPLICATION",
                "port_map": {"tb": 6006},
                "resource": {"cpu": 1, "gpu": 1, "memMB": 100},
            }
        ],
        "metadata": {"owner": "x"},
    },
}
SCRIPT = """az batchai workspace create -n w -g g -l eastus
az batchai file-server create -n nfs -s Standard_D2_v3 --disk-count 2 --disk-size 10 -u me
az batchai cluster create --name nc6 --vm-size STANDARD_NC6 --min 0 --max 4 --target 0 --vm-priority lowpriority \\
  --image UbuntuLTS --custom-image /images/i --setup-task 'true' --setup-task-output /x --subnet /subnets/s \\
  --user-name me --ssh-key key --password p --generate-ssh-keys --use-auto-storage --nfs nfs --nfs-mount-path nfs \\
  --storage-account-name account --storage-account-key k --afs-name share --afs-mount-path afs \\
  --bfs-name blobs --bfs-mount-path bfs --config-file cluster.json --location eastus
az batchai experiment create -n tries
az batchai job create --name train --cluster nc6 --experiment tries --config-file job.json --no-wait \\
  --storage-account-name account --afs-name share --afs-mount-path afs --workspace w --resource-group g
az batchai job file stream --job train --file-name stdout.txt
"""
