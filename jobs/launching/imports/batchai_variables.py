"""Writes the lines that give a job the variables and folders of Batch AI, so that its scripts run unchanged.

They run in bash: in each rank before the program, and once a node before its preparation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.launching.imports.shell_text import double_quoted

# Lies in the folders for data of an import until their files do.
NOTE = "PUT-FILES-HERE.md"
JOB_ROOT, ROOT = "AZ_BATCHAI_JOB_MOUNT_ROOT", "AZ_BATCHAI_MOUNT_ROOT"
TEMP = "AZ_BATCHAI_JOB_TEMP"
# docs/import.md lists them; a test holds both to each other.
VARIABLES: Mapping[str, str] = {
    ROOT: "the folder of the cluster's mounts",
    JOB_ROOT: "the folder of the job's mounts",
    "AZ_BATCHAI_INPUT_<ID>": "the path of an input directory",
    "AZ_BATCHAI_OUTPUT_<ID>": "the folder of an output, which `launch fetch` brings back",
    TEMP: "a folder of the run on the node",
    "AZ_BATCHAI_JOB_TEMP_DIR": "the folder above it",
    "AZ_BATCHAI_SHARED_JOB_TEMP": "a folder that all nodes of the run see",
    "AZ_BATCHAI_STDOUTERR_DIR": "a folder that `launch fetch` brings back; logs are kept by `launch` itself",
    "AZ_BATCHAI_NUM_GPUS": "the number of GPUs of the node",
    "AZ_BATCHAI_TASK_INDEX": "the rank; with TensorFlow the index of the task",
    "AZ_BATCHAI_PYTORCH_INIT_METHOD": "tcp:// and the address of rank 0",
    "AZ_BATCHAI_PYTORCH_BACKEND": "the backend that the job names, else gloo",
    "AZ_BATCHAI_MPI_MASTER_NODE": "the address of rank 0's node",
    "AZ_BATCHAI_MPI_HOST_FILE": "a host file with this node alone: the ranks are started already",
    "AZ_BATCHAI_PS_HOSTS": "the addresses of TensorFlow's parameter servers",
    "AZ_BATCHAI_WORKER_HOSTS": "the addresses of TensorFlow's workers",
}
REFERENCE = re.compile(
    r"\$(?:\{(AZ_BATCHAI_(?:JOB_)?MOUNT_ROOT)\}|(AZ_BATCHAI_(?:JOB_)?MOUNT_ROOT)(?![A-Za-z0-9_]))"
    r"/*(?P<path>[A-Za-z0-9._+@/-]*)"
)
_FOLDERS = f"""\
export {ROOT}="$PWD/.batchai/mounts" {JOB_ROOT}="$PWD/.batchai/job"
export AZ_BATCHAI_JOB_TEMP_DIR="$PWD/.batchai" {TEMP}="$PWD/.batchai/temp"
export AZ_BATCHAI_SHARED_JOB_TEMP="$TRAINYARD_CHECKPOINT_DIR/shared"
export AZ_BATCHAI_STDOUTERR_DIR="$PWD/outputs/stdouterr"
mkdir -p "${ROOT}" "${JOB_ROOT}" "${TEMP}" "$AZ_BATCHAI_SHARED_JOB_TEMP" "$AZ_BATCHAI_STDOUTERR_DIR"
"""
_RANK = """\
export AZ_BATCHAI_TASK_INDEX="$RANK" AZ_BATCHAI_MPI_MASTER_NODE="$MASTER_ADDR"
export AZ_BATCHAI_MPI_HOST_FILE="$PWD/.batchai/hostfile"
echo "localhost slots=$LOCAL_WORLD_SIZE" > "$AZ_BATCHAI_MPI_HOST_FILE"
export AZ_BATCHAI_PYTORCH_INIT_METHOD="tcp://$MASTER_ADDR:$MASTER_PORT"
"""
_GPUS = """\
if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
  export AZ_BATCHAI_NUM_GPUS="$(echo "$CUDA_VISIBLE_DEVICES" | tr , '\\n' | grep -c '^[^-]')"
else
  export AZ_BATCHAI_NUM_GPUS="$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')"
fi
"""
_TASKS = """\
tasks='import json, os
told = json.loads(os.environ["TF_CONFIG"])
print(*(",".join(told["cluster"].get(each, [])) or "-" for each in ("ps", "worker")), told["task"]["index"])'
read -r AZ_BATCHAI_PS_HOSTS AZ_BATCHAI_WORKER_HOSTS AZ_BATCHAI_TASK_INDEX <<< "$(python -c "$tasks")"
export AZ_BATCHAI_PS_HOSTS="${AZ_BATCHAI_PS_HOSTS#-}" AZ_BATCHAI_WORKER_HOSTS AZ_BATCHAI_TASK_INDEX
"""
_NO_TASKS = "export AZ_BATCHAI_PS_HOSTS= AZ_BATCHAI_WORKER_HOSTS=\n"
_LAY = """\
lay() {  # links to what is in the folder $2 into the folder $1
  mkdir -p "$1"
  for each in "$2"/* "$2"/.[!.]*; do
    [ -e "$each" ] && [ "${each##*/}" != NOTE ] && ln -s "$each" "$1" 2>/dev/null
  done
}
""".replace("NOTE", NOTE)
_AIM = """\
aim() {  # what is written to $2 in the folder $1 goes to the output $3, unless it is there already
  [ -e "$1/$2" ] && return
  mkdir -p "$3/$2" "$(dirname "$1/$2")" && ln -sn "$3/$2" "$1/$2" 2>/dev/null
}
"""
_KEEP = """\
keep() {  # new files in the folder $1 go to the output $2
  (cd "$1" && find . -type f -exec cp -p --parents -t "$2" {} +)
}
"""


@dataclass(kw_only=True)
class Mount:
    """A mounted folder of a job: below which root, and which input and output stand in its place.

    `links` are folders in it that are those of `code` (`pytorch` -> `.`), `aims` folders that the job
    writes.
    """

    root: str
    path: str
    source: str
    input: str | None = None
    output: str | None = None
    links: dict[str, str] = field(default_factory=dict[str, str])
    code: Path | None = None
    aims: list[str] = field(default_factory=list[str])
    reads: bool = False
    writes: bool = False

    def is_code(self, path: str) -> bool:
        """Tell whether a path in the mount is one of the code's."""
        for folder, code in self.links.items():
            inside = path == folder or not folder or path.startswith(f"{folder}/")
            if (
                inside
                and self.code
                and (self.code / code / path[len(folder) :].strip("/")).exists()
            ):
                return True
        return False


def preamble(
    mounts: Sequence[Mount],
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    exports: Mapping[str, str],
    *,
    has_tasks: bool = False,
    backend: str = "gloo",
    is_rank: bool = True,
) -> str:
    """Write the lines before a program; `inputs`, `outputs` and `exports` map variables to their texts.

    Without `is_rank` they are those of a node's preparation.
    """
    lines = [_FOLDERS, _RANK, f"export AZ_BATCHAI_PYTORCH_BACKEND={backend}\n", _GPUS]
    lines.append(_TASKS if has_tasks and is_rank else _NO_TASKS)
    lines += _helpers(mounts, is_rank=is_rank)
    for mount in mounts:
        lines += _mount_lines(mount)
    if is_rank:
        kept = [each for each in mounts if each.output]
        calls = "; ".join(
            f'keep "${each.root}/{each.path}" "$TRAINYARD_OUTPUT_{(each.output or "").upper()}"'
            for each in kept
        )
        lines += [f"trap '{calls}' EXIT\n"] if kept else []
    lines += [f"export {name}={double_quoted(text)}\n" for name, text in inputs.items()]
    lines += [
        f'export {name}="$TRAINYARD_OUTPUT_{output.upper()}"\n' for name, output in outputs.items()
    ]
    lines += [f"export {name}={double_quoted(text)}\n" for name, text in exports.items()]
    return "".join(lines)


def _helpers(mounts: Sequence[Mount], *, is_rank: bool) -> list[str]:
    has_outputs = any(each.output for each in mounts)
    lays = any(each.input or ("" in each.links and each.output) for each in mounts)
    return [
        *([_LAY] if lays else []),
        *([_AIM] if any(each.aims and each.output for each in mounts) else []),
        *([_KEEP] if has_outputs and is_rank else []),
    ]


def _mount_lines(mount: Mount) -> list[str]:
    place = f"${mount.root}/{mount.path}".rstrip("/")
    # The code's own folder stands for a mount of which nothing else is known.
    is_code = "" in mount.links and not mount.input and not mount.output
    lines = [] if is_code else [f'mkdir -p "{place}"\n']
    for folder, code in mount.links.items():
        aim = f"$PWD/{code}".removesuffix("/.")
        if not folder and not is_code:
            lines.append(f'lay "{place}" "{aim}"\n')
            continue
        link = f"{place}/{folder}".rstrip("/")
        lines.append(f'mkdir -p "{link.rpartition("/")[0]}"; ln -sn "{aim}" "{link}" 2>/dev/null\n')
    if mount.input:
        lines.append(f'lay "{place}" "$TRAINYARD_INPUT_{mount.input.upper()}"\n')
    if mount.output:
        output = f"$TRAINYARD_OUTPUT_{mount.output.upper()}"
        lines += [f'aim "{place}" "{each}" "{output}"\n' for each in mount.aims]
    return lines
