"""What goes into a container image: its files, its name, and the context that an engine gets."""

import shutil
from pathlib import Path

import pytest

from jobs.contracts.errors import NotFound
from jobs.images import recipes as containers
from jobs.images.recipes import bases, lay_context, read_recipe
from tests.folders import read_folder

ROOT = Path(__file__).parents[3]
MENDED = ROOT / "images" / "horovod" / "mended"


@pytest.fixture
def project(tmp_path):
    """A project with the real images and a small trainer/."""
    root = tmp_path / "project"
    shutil.copytree(ROOT / "images", root / "images")
    for name in ("__init__.py", "pytorch/mnist.py", "__pycache__/mnist.cpython-311.pyc"):
        (root / "trainer" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "trainer" / name).write_text("# as it is\n")
    (root / "trainer" / ".mnist.py.swp").write_text("")
    return root


SHARED = [
    "images/horovod/build.py",
    "images/horovod/check.py",
    "images/horovod/mend.py",
    *sorted(f"images/horovod/mended/{path.name}" for path in MENDED.glob("*.py")),
    "images/horovod/requirements.txt",
    "images/horovod/sdist.txt",
]
TRAINER = ["trainer/__init__.py", "trainer/pytorch/mnist.py"]


@pytest.mark.parametrize(
    ("image", "variant", "lock"),
    [
        ("pytorch", "cpu", "requirements.txt"),
        ("pytorch", "cuda", "requirements.txt"),
        ("tensorflow", "cpu", "requirements.txt"),
        ("tensorflow", "cuda", "requirements-cuda.txt"),
        ("tensorflow-keras2", "cpu", "requirements.txt"),
        ("tensorflow-keras2", "cuda", "requirements-cuda.txt"),
    ],
)
def test_the_context_holds_what_the_dockerfile_copies_and_nothing_else(
    project, tmp_path, image, variant, lock
):
    recipe = read_recipe(image, variant, project)
    context = tmp_path / "context"
    context.mkdir()
    lay_context(recipe, context)
    own = [f"images/{image}/Dockerfile", f"images/{image}/{lock}"]
    tools = [
        "images/common.Dockerfile",
        "images/pip.txt",
        "images/sbom.py",
        "images/uv.txt",
        "images/with-index.sh",
    ]
    assert sorted(read_folder(context)) == sorted([*SHARED, *own, *tools, *TRAINER])
    assert recipe.arguments["LOCK"] == lock
    assert recipe.arguments["GPU_OPERATIONS"] == {"cpu": "none", "cuda": "nccl"}[variant]
    assert ("nvidia/cuda" in recipe.arguments["BASE_IMAGE"]) is (variant == "cuda")
    assert ("-devel-" in recipe.arguments["BUILD_IMAGE"]) is (variant == "cuda")


def test_the_context_says_nothing_of_this_machine(project, tmp_path):
    (project / "trainer" / "__init__.py").chmod(0o600)
    context = tmp_path / "context"
    context.mkdir(mode=0o700)
    lay_context(read_recipe("pytorch", "cpu", project), context)
    modes = {
        path.relative_to(context).as_posix(): (path.stat().st_mode & 0o777, path.stat().st_mtime)
        for path in context.rglob("*")
    }
    programs = {name for name, (mode, _) in modes.items() if mode & 0o111 and "." in name}
    assert programs == {"images/with-index.sh"}
    assert {mode for mode, _ in modes.values()} == {0o644, 0o755}
    assert {time for _, time in modes.values()} == {containers.TIMESTAMP_S}


CHANGES = [
    *("images/pytorch/Dockerfile", "images/pytorch/requirements.txt", "images/horovod/build.py"),
    *(
        "images/pip.txt",
        "images/uv.txt",
        "images/sbom.py",
        "images/with-index.sh",
        "images/common.Dockerfile",
        "trainer/pytorch/mnist.py",
    ),
]


@pytest.mark.parametrize("changed", CHANGES)
def test_a_change_of_anything_that_goes_in_is_another_image(project, changed):
    before = read_recipe("pytorch", "cpu", project)
    with (project / changed).open("a") as file:
        file.write("\n")
    after = read_recipe("pytorch", "cpu", project)
    assert before.tag != after.tag
    assert after.reference == f"localhost/trainyard/pytorch:{after.tag}"


@pytest.mark.parametrize(
    "changed", ["trainer/__pycache__/x.pyc", "images/tensorflow/Dockerfile", "jobs/new.py"]
)
def test_a_change_of_anything_else_is_the_same_image(project, changed):
    before = read_recipe("pytorch", "cpu", project)
    (project / changed).parent.mkdir(exist_ok=True)
    (project / changed).write_text("\n")
    assert read_recipe("pytorch", "cpu", project).tag == before.tag


def test_a_new_file_of_the_trainers_and_a_bit_of_its_mode_are_another_image(project):
    tags = {read_recipe("pytorch", "cpu", project).tag}
    (project / "trainer" / "new.py").write_text("")
    tags.add(read_recipe("pytorch", "cpu", project).tag)
    (project / "trainer" / "new.py").chmod(0o755)
    tags.add(read_recipe("pytorch", "cpu", project).tag)
    (project / "trainer" / "new.py").rename(project / "trainer" / "other.py")
    tags.add(read_recipe("pytorch", "cpu", project).tag)
    assert len(tags) == 4


def test_the_variants_have_tags_of_their_own(project):
    cpu, cuda = (read_recipe("pytorch", each, project).tag for each in containers.VARIANTS)
    assert cpu.startswith("cpu-")
    assert cuda.startswith("cuda-")
    assert cpu.partition("-")[2] != cuda.partition("-")[2]


def test_an_image_without_a_cuda_base_has_no_such_variant(project):
    path = project / "images" / "pytorch" / "Dockerfile"
    path.write_text(path.read_text().replace("ARG CUDA_B", "# CUDA_B"))
    read_recipe("pytorch", "cpu", project)
    with pytest.raises(NotFound) as caught:
        read_recipe("pytorch", "cuda", project)
    assert caught.value.message == (
        "image `pytorch` has no variant `cuda`: no ARG CUDA_BASE_IMAGE, CUDA_BUILD_IMAGE"
    )


def test_an_image_without_a_dockerfile_can_still_be_installed(project):
    (project / "images" / "pytorch" / "Dockerfile").unlink()
    with pytest.raises(NotFound) as caught:
        read_recipe("pytorch", "cpu", project)
    assert caught.value.hint == "launch image install pytorch (it runs on this machine only)"


def test_a_dockerfile_is_the_images_bases_and_the_common_text(project, tmp_path):
    own = (project / "images" / "pytorch" / "Dockerfile").read_text()
    common = (project / "images" / "common.Dockerfile").read_text()
    recipe = read_recipe("pytorch", "cpu", project)
    assert recipe.text == f"{own}\n{common}"
    lay_context(recipe, tmp_path)
    assert (tmp_path / recipe.dockerfile).read_text() == recipe.text


def test_a_whole_dockerfile_may_copy_what_lies_beside_it(project, tmp_path):
    folder = project / "images" / "pytorch"
    (folder / "certificates").mkdir()
    (folder / "certificates" / "company.pem").write_text("of us\n")
    (folder / ".hidden").write_text("")
    before = read_recipe("pytorch", "cpu", project)
    assert "images/pytorch/certificates/company.pem" not in before.files
    with (folder / "Dockerfile").open("a") as file:
        file.write((project / "images" / "common.Dockerfile").read_text())
        file.write("COPY images/pytorch/certificates /usr/local/share/ca-certificates/\n")
    recipe = read_recipe("pytorch", "cpu", project)
    lay_context(recipe, tmp_path / "context")
    files = read_folder(tmp_path / "context")
    own = {name for name in files if name.startswith("images/pytorch/")}
    names = ("Dockerfile", "certificates/company.pem", "requirements.in", "requirements.txt")
    assert own == {f"images/pytorch/{name}" for name in names}
    assert files["images/pytorch/certificates/company.pem"] == b"of us\n"
    (folder / "certificates" / "company.pem").write_text("of others\n")
    assert read_recipe("pytorch", "cpu", project).tag != recipe.tag


def test_an_image_without_open_mpi_is_built_without_horovod(project):
    (project / "images" / "pytorch" / "requirements.txt").write_text("numpy==2.4.6\n")
    assert read_recipe("pytorch", "cpu", project).arguments["FRAMEWORK"] == ""


def test_only_the_arguments_above_the_first_stage_are_bases():
    text = "# x\nARG BASE_IMAGE=a:1@sha256:0\nARG  OTHER=${BASE_IMAGE}\nFROM ${OTHER}\nARG LOCK=c\n"
    assert bases(text) == {"BASE_IMAGE": "a:1@sha256:0", "OTHER": "a:1@sha256:0"}


def test_the_base_is_told_by_name_and_digest(project):
    name, digest = read_recipe("pytorch", "cpu", project).base
    assert name.startswith("docker.io/library/debian:bookworm-")
    assert digest.startswith("sha256:")
