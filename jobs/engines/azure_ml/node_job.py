"""Make the parts of an Azure ML job that start its ranks: a file beside the code, a command, variables.

Pure. The file (`snapshot_file`) is the same for every run, so that equal code is uploaded once; what
is of one run travels as TRAINYARD_RUN, TRAINYARD_ATTEMPT, TRAINYARD_IDENTITY and TRAINYARD_JOB. None
holds a secret: names of secrets only.
"""

from __future__ import annotations

import base64

import msgspec
from msgspec import UNSET, Struct, UnsetType

from jobs.contracts.spec import Cluster, DatasetVersion, Environment, JobSpec
from jobs.engines.azure_ml.fabric import fabric_environment, topology_series
from jobs.engines.frameworks import stall_environment, torch_environment
from jobs.rank.code import LIST_FILE
from jobs.rank.placeholders import has_placeholder
from jobs.rank.program import PROGRAM_FILE, RANK_MODULES, zip_program
from jobs.rank.settings import (
    ATTEMPT_VARIABLE,
    IDENTITY_VARIABLE,
    JOB_VARIABLE,
    RUN_VARIABLE,
)

SNAPSHOT_FILE = f".trainyard/{PROGRAM_FILE}"
SIZE_VARIABLE = "TRAINYARD_NODE_SIZE"
CHECKPOINTS_OUTPUT = "trainyard_checkpoints"
_MODULES = (
    *RANK_MODULES,
    "azure_main",
    "azure_node",
    "chief",
    "code",
    "hang",
    "hosts",
    "identity",
    "services",
    "settings",
    "streams",
    "topology",
    "uploads",
)
# What Python is given to run: the list of the code's files is the one whose digest the code's name
# has, and what starts the ranks is as the list says. In double quotes, so none of " $ ` \ ! in it.
_CHECKED = (
    "import json,os,runpy,sys;from hashlib import sha256;"
    "read=lambda path:open(path,'rb').read();"
    f"code,files,program=sys.argv.pop(1),read('{LIST_FILE}'),'{SNAPSHOT_FILE}';"
    "('trainyard-'+sha256(files).hexdigest()[:40]==code"
    " and json.loads(files)[program]==sha256(read(program)).hexdigest())"
    " or sys.exit('error: the code on this node differs from the sent code "
    "(hint: tell the owner of the stack)');"
    # The ranks go elsewhere, and load more of it then.
    "runpy.run_path(os.path.abspath(program),run_name='__main__')"
)
# Any Python can read so much of it as says that it is too old.
_MAIN = """import sys

if sys.version_info < (3, 9):
    sys.exit(
        "error: the image's `python` is %d.%d and the ranks need 3.9 or newer "
        "(hint: put a newer one first on PATH in the image)" % tuple(sys.version_info[:2])
    )
from jobs.rank.azure_main import main

sys.exit(main())
"""


class Stream(Struct, frozen=True, kw_only=True):
    """An input whose shards stay in the blob store: where its list of files is, and where they are."""

    files: str
    prefix: str


class NodeJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """TRAINYARD_JOB, as jobs/rank/settings.py reads it; the same for all ranks of a run.

    `secrets` maps variables to names in `vault`; `store` is the address of the blob service, `data`
    and `runs` are its containers. `env` are the variables whose values hold placeholders, `files` the
    one file that an input stands for. `topology` is the series of the node's size, where NCCL has to be
    told how it is built.
    """

    command: tuple[str, ...]
    setup: tuple[str, ...]
    chief: bool
    outputs: tuple[str, ...]
    secrets: dict[str, str]
    vault: str | None
    store: str
    data: str
    runs: str
    streams: dict[str, Stream]
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    requirements: str | UnsetType = UNSET
    hang_s: float | UnsetType = UNSET
    topology: str | UnsetType = UNSET


def snapshot_file() -> bytes:
    """Build SNAPSHOT_FILE, which starts each rank, as a program that Python runs as it is."""
    return zip_program(_MAIN, _MODULES)


def node_command(spec: JobSpec, code: str) -> str:
    """Make the job's command: Azure ML starts it once for each rank, with the places filled in.

    `code` is the name of the upload, which says what has to be in it.
    """
    places = [f"checkpoints=${{{{outputs.{CHECKPOINTS_OUTPUT}}}}}"]
    places += [
        f"input.{name}=${{{{inputs.{name}}}}}"
        for name, each in spec.inputs.items()
        if each.mode != "stream"
    ]
    # Quick start: no site, no environment of the interpreter's own.
    return " ".join(["python -I -S -c", *(f'"{word}"' for word in (_CHECKED, code, *places))])


def environment_variables(
    spec: JobSpec, environment: Environment, *, run: str, attempt: int
) -> dict[str, str]:
    """Make all variables of the job: its own, the launcher's, and what rank/main.py has to know."""
    job = msgspec.json.encode(node_job(spec, environment), order="deterministic")
    cluster = environment.clusters[spec.cluster]
    return {
        **_launcher_environment(spec, cluster, run),
        **fabric_environment(spec, cluster),
        **{name: value for name, value in spec.env.items() if not has_placeholder(value)},
        SIZE_VARIABLE: cluster.size,
        RUN_VARIABLE: run,
        ATTEMPT_VARIABLE: str(attempt),
        **({IDENTITY_VARIABLE: spec.identity} if spec.identity else {}),
        # Letters, digits, `-`, `_` and `=` alone: whatever hands variables on to the ranks (Azure ML's
        # expressions, shells, mpirun) finds nothing in it to read.
        JOB_VARIABLE: base64.urlsafe_b64encode(job).decode(),
    }


def node_job(spec: JobSpec, environment: Environment) -> NodeJob:
    """Make the content of TRAINYARD_JOB."""
    storage = environment.storage
    return NodeJob(
        command=spec.command,
        setup=spec.setup,
        requirements=spec.requirements,
        hang_s=UNSET if spec.limits.hang_s is None else spec.limits.hang_s,
        topology=topology_series(environment.clusters[spec.cluster]) or UNSET,
        chief=spec.chief,
        outputs=spec.outputs,
        secrets=spec.secrets,
        vault=environment.key_vault.uri if environment.key_vault else None,
        store=storage.blob_endpoint.rstrip("/"),
        data=storage.containers.data,
        runs=storage.containers.runs,
        streams={
            name: _stream(each.dataset)
            for name, each in spec.inputs.items()
            if each.mode == "stream"
        },
        env={name: value for name, value in spec.env.items() if has_placeholder(value)},
        files={name: each.file for name, each in spec.inputs.items() if each.file},
    )


def _stream(dataset: DatasetVersion) -> Stream:
    from jobs.datasets.file_list import list_name

    return Stream(files=list_name(dataset.name, dataset.digest), prefix=dataset.content_prefix)


def _launcher_environment(spec: JobSpec, cluster: Cluster, run: str) -> dict[str, str]:
    """Make the frameworks' variables; Azure ML says by which network ranks reach each other."""
    if spec.launcher in {"horovod", "mpi"}:
        return stall_environment(spec.limits)
    if spec.launcher == "torch":
        return {**torch_environment(spec.limits, has_store=False), "TORCHELASTIC_RUN_ID": run}
    if spec.launcher == "tensorflow":
        # As locally: a process that has fewer threads than there are others may wait for itself.
        return {"TF_NUM_INTEROP_THREADS": str(max(cluster.cpus_per_node, spec.num_processes + 1))}
    return {}
