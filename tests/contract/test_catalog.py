"""Every job of the catalog can be read, fits every local environment, and its program takes it."""

import json
from functools import cache
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.spec import DatasetVersion, Environment
from jobs.engines import load_engine
from jobs.engines.local.launchers import gang_request
from jobs.host.project import project_root
from jobs.images import runtimes as images
from jobs.jobfile.find import catalog_names
from jobs.jobfile.program_options import read_options
from jobs.jobfile.read import load_job as read_job
from jobs.jobfile.resolve import resolve
from tests.busy import Bound
from tests.fakes.gangs import make_environment


def cluster(size, *, gpus, nodes, processes, priority="dedicated"):
    return {
        "compute": f"{size.rpartition('_')[0].lower()}-1a2b",
        "size": size,
        "gpus_per_node": gpus,
        "cpus_per_node": 8,
        "processes_per_node": processes,
        "rdma": gpus == 8,
        "priority": priority,
        "min_nodes": 0,
        "max_nodes": nodes,
        "idle_s": 120,
        "price_per_node_hour": None,
        "currency": None,
    }


def azure(stack, clusters):
    """What the stack of that name is to give out (docs/schemas/environment-1.json)."""
    registry = f"ty{stack}.azurecr.io"
    given = {
        "schema": 1,
        "stack": stack,
        "engine": "azureml",
        "location": "westeurope",
        "subscription_id": "00000000-0000-0000-0000-000000000000",
        "resource_group": f"trainyard-{stack}",
        "workspace": {"name": f"ws-{stack}", "id": f"/ws-{stack}", "endpoint": "https://ml.test"},
        "storage": {
            "account": f"ty{stack}",
            "blob_endpoint": f"https://ty{stack}.blob.core.windows.net",
            "containers": {"data": "data", "runs": "runs"},
        },
        "registry": {"login_server": registry},
        "key_vault": {"uri": f"https://kv-{stack}.vault.azure.net"},
        "clusters": clusters,
        "images": {
            name: f"{registry}/{name}@sha256:{'0' * 64}"
            for name in images.list_images(project_root())
        },
    }
    return msgspec.convert(given, Environment)


# Nothing changes a loaded job.
load_job = cache(read_job)
# Frameworks take seconds to load.
ZYGOTES = {"pytorch": "zygote", "tensorflow": "tensorflow_zygote"}

ENVIRONMENTS = {
    "local": make_environment(Path("/w"), nodes=1, processes=2),
    "dev": azure(
        "dev",
        {
            "gpu": cluster(
                "Standard_NC4as_T4_v3", gpus=1, nodes=2, processes=1, priority="low_priority"
            )
        },
    ),
    "prod": azure(
        "prod",
        {
            "cpu": cluster("Standard_D8s_v5", gpus=0, nodes=4, processes=8),
            "gpu": cluster("Standard_ND96isr_H100_v5", gpus=8, nodes=4, processes=8),
        },
    ),
}


def resolved(name, *, nodes, processes):
    return resolved_on(name, make_environment(Path("/w"), nodes=nodes, processes=processes))


def resolved_on(name, environment):
    loaded = load_job(name)
    datasets = {
        each.dataset: DatasetVersion(name="d", version=1, digest="sha256:1", files=1, bytes=1)
        for each in loaded.job.inputs.values()
    }
    spec = resolve(
        loaded.job,
        environment=environment,
        datasets=datasets,
        code=loaded.code,
        image_reference=load_engine(environment).image_reference,
    )
    return spec, environment


@pytest.mark.parametrize("name", catalog_names())
@pytest.mark.parametrize("processes", [1, 2, 8])
@pytest.mark.parametrize("gpus", [0, 1, 3, 8])
def test_a_catalog_job_fits_every_local_cluster(name, processes, gpus):
    made = make_environment(Path("/w"), nodes=1, processes=processes)
    cluster = msgspec.structs.replace(made.clusters["cpu"], gpus_per_node=gpus)
    environment = msgspec.structs.replace(made, clusters={"cpu": cluster})
    spec, _ = resolved_on(name, environment)
    request = gang_request(spec, cluster)
    assert len(request.ranks) == spec.world_size == (gpus or processes)


@pytest.mark.parametrize("name", catalog_names())
@pytest.mark.parametrize("stack", ENVIRONMENTS)
def test_a_catalog_job_resolves_on_every_stack(name, stack):
    spec, environment = resolved_on(name, ENVIRONMENTS[stack])
    place = environment.clusters[spec.cluster]
    assert 1 <= spec.nodes <= place.max_nodes
    assert spec.processes_per_node <= (place.gpus_per_node or place.processes_per_node)
    image = load_job(name).job.image
    assert spec.image == environment.images.get(image, image)


@pytest.mark.parametrize("name", catalog_names())
def test_a_catalog_job_names_itself_and_an_image_of_this_project(name):
    job = load_job(name).job
    assert job.name == name
    assert job.image in images.list_images(project_root())


def test_every_pytorch_job_of_horovod_has_a_twin_of_ddp():
    """Its twin differs in the launcher and the strategy, and in nothing else that a job says."""
    twins = [name for name in catalog_names() if name.endswith("-ddp")]
    jobs = {name: load_job(name).job for name in catalog_names()}
    by_horovod = [
        name for name, job in jobs.items() if job.image == "pytorch" and job.launcher == "horovod"
    ]
    assert twins == sorted(f"{name}-ddp" for name in by_horovod)
    for name in by_horovod:
        job = jobs[name]
        twin = msgspec.structs.replace(
            job,
            name=f"{name}-ddp",
            description=jobs[f"{name}-ddp"].description,
            launcher="torch",
            args=job.args | {"strategy": "ddp"},
        )
        assert jobs[f"{name}-ddp"] == twin


@pytest.fixture(scope="module")
def ask_programs(request, tmp_path_factory):
    """What an image's programs say to the arguments of their jobs, by job, and their flags."""

    @cache
    def ask(image):
        specs = {name: resolved(name, nodes=1, processes=2)[0] for name in catalog_names()}
        commands = {name: spec.command for name, spec in specs.items() if spec.image == image}
        assert {command[:2] for command in commands.values()} == {("python", "-m")}
        asked = [{name: command[2:] for name, command in commands.items()}, modules_of(image)]
        folder = tmp_path_factory.mktemp(image)
        said, log = folder / "said.json", folder / "log"
        zygote = request.getfixturevalue(ZYGOTES[image])
        argv = ["tests.contract.programs.options", json.dumps(asked), str(said)]
        pid = zygote.fork(argv, env={}, cwd=project_root(), log=log)
        bound = Bound(120)
        while not zygote.wait([pid], 1):
            bound.check(log.read_text())
        assert zygote.code(pid) == 0, log.read_text()
        return json.loads(said.read_text())

    return ask


def modules_of(image):
    jobs = [load_job(name).job for name in catalog_names()]
    return sorted({job.module for job in jobs if job.image == image and job.module})


@pytest.mark.parametrize("image", ["pytorch", "tensorflow"])
def test_the_options_that_are_read_from_a_programs_source_are_its_flags(ask_programs, image):
    _, flags = ask_programs(image)
    assert flags == {
        module: {
            name: [option.kind, list(option.choices), option.default]
            for name, option in read_options(module, project_root()).items()
        }
        for module in modules_of(image)
    }


@pytest.mark.parametrize("name", catalog_names())
def test_a_catalog_jobs_program_takes_its_arguments(ask_programs, name):
    spec, _ = resolved(name, nodes=1, processes=2)
    said, _ = ask_programs(spec.image)
    assert said[name] == "taken"
