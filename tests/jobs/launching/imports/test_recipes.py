"""Recipes of Batch AI become jobs that each engine plans, or are refused by the name of their framework."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from jobs.contracts.spec import Environment
from jobs.engines import load_engine
from jobs.jobfile.read import load_job
from jobs.launching.imports.draft import Choices
from jobs.launching.imports.importing import import_documents, write_files
from jobs.launching.plan import plan_on
from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.gangs import make_cluster, make_environment
from tests.jobs.launching.imports.generated import leaf_keys

RECIPES = sorted(Path(__file__).with_name("batchai_recipes").glob("*.json"))
DEAD = ("CNTK", "Caffe2", "Chainer", "Keras-GPU-job_cntk")


def environments(folder: Path) -> list[Environment]:
    """Stacks of each engine, large enough for every recipe, with the project's images."""
    images = {name: f"{name}@sha256:{'0' * 64}" for name in ("pytorch", "tensorflow")}
    clouds = [make_cloud_environment(engine=engine) for engine in ("azureml", "azureml_v1")]
    cluster = structs.replace(make_cluster(nodes=8, processes=8), gpus_per_node=0)
    return [
        make_environment(folder, nodes=8, processes=8),
        *(structs.replace(each, images=images, clusters={"cpu": cluster}) for each in clouds),
    ]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
@pytest.mark.parametrize("as_mpi", [False, True])
def test_a_recipe_is_planned_by_each_engine_or_refused_by_name(
    tmp_path: Path, recipe: Path, as_mpi: bool
) -> None:
    made = import_documents([recipe], tmp_path / "made", Choices(as_mpi=as_mpi))
    document = json.loads(recipe.read_text(encoding="utf-8"))
    assert [each.key for each in made.told] == list(leaf_keys(document))
    is_dead = recipe.name.startswith(DEAD)
    assert bool(made.files) is (as_mpi or not is_dead)
    if is_dead and not as_mpi:
        reasons = " ".join(each.reason or "" for each in made.told)
        assert any(f"{name} is not developed" in reasons for name in ("CNTK", "Caffe2", "Chainer"))
        return
    refused = [each.key.rpartition(".")[2] for each in made.told if each.reason]
    assert set(refused) <= {"pythonScriptFilePath", "commandLine", "configFilePath", "image"}
    write_files(made, tmp_path / "made")
    loaded = load_job(str(tmp_path / "made" / f"{recipe.stem}.yaml"))
    for environment in environments(tmp_path / "workspace"):
        job = structs.replace(loaded.job, inputs={})
        plan = plan_on(job, loaded.code, load_engine(environment))
        assert plan.spec.command == loaded.job.command
