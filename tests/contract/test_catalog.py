"""Every job of the catalog can be read, fits every local environment, and its program takes it."""

import subprocess
from pathlib import Path

import pytest

from jobs import images
from jobs.errors import LaunchError
from jobs.jobfile import catalog_names, load_job
from jobs.launchers import gang_request
from jobs.project import project_root
from jobs.resolve import resolve
from jobs.spec import DatasetVersion
from tests.fakes.gangs import make_environment

PARSE = """
import importlib, sys
from trainer.common.options import parse_options
parse_options(importlib.import_module(sys.argv[1]).Options, sys.argv[2:])
"""


def resolved(name, *, nodes, processes):
    loaded = load_job(name)
    environment = make_environment(Path("/w"), nodes=nodes, processes=processes)
    datasets = {
        each.dataset: DatasetVersion(name="d", version=1, digest="sha256:1", files=1, bytes=1)
        for each in loaded.job.inputs.values()
    }
    spec = resolve(loaded.job, environment=environment, datasets=datasets, code=loaded.code)
    return spec, environment


@pytest.mark.parametrize("name", catalog_names())
@pytest.mark.parametrize("processes", [1, 2, 8])
def test_a_catalog_job_fits_every_local_cluster(name, processes):
    spec, environment = resolved(name, nodes=1, processes=processes)
    request = gang_request(spec, environment.clusters["cpu"])
    assert len(request.ranks) == spec.world_size == processes


@pytest.mark.parametrize("name", catalog_names())
def test_a_catalog_job_names_itself_and_an_image_of_this_project(name):
    job = load_job(name).job
    assert job.name == name
    assert job.image in images.list_images(project_root())


@pytest.mark.parametrize("name", catalog_names())
def test_a_catalog_jobs_program_takes_its_arguments(name):
    spec, _ = resolved(name, nodes=1, processes=2)
    try:
        python = images.runtime_python(spec.image, project_root())
    except LaunchError as error:
        pytest.skip(f"{error.message}; {error.hint}")
    python_word, dash_m, module, *arguments = spec.command
    assert (python_word, dash_m) == ("python", "-m")
    done = subprocess.run(
        [python, "-c", PARSE, module, *arguments],
        cwd=project_root(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
