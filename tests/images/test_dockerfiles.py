"""Every Dockerfile keeps our rules that Checkov cannot see; tests/infra/checkov holds Checkov's.

Each rule is also shown to refuse a Dockerfile that breaks it.
"""

import re
from pathlib import Path

import pytest

from jobs.images.recipes import VARIANTS, bases, read_recipe
from jobs.images.runtimes import list_images

ROOT = Path(__file__).parents[2]
IMAGES = list_images(ROOT)
# Those that the project brings; others may have a whole Dockerfile of their own.
FRAMEWORKS = {"pytorch": "pytorch", "tensorflow": "tensorflow", "tensorflow-keras2": "tensorflow"}
TEXTS = {image: read_recipe(image, "cpu", ROOT).text for image in IMAGES}


@pytest.mark.parametrize("image", FRAMEWORKS)
def test_an_images_own_dockerfile_names_its_bases_alone(image):
    own = (ROOT / "images" / image / "Dockerfile").read_text(encoding="utf-8")
    names = ["BASE_IMAGE", "BUILD_IMAGE", "CUDA_BASE_IMAGE", "CUDA_BUILD_IMAGE"]
    assert [(word, rest.partition("=")[0]) for word, rest in instructions(own)] == [
        ("ARG", name) for name in names
    ]


# What `python3` is in each release that an image is built on.
PYTHONS = {"bookworm": (3, 11), "ubuntu22.04": (3, 10), "ubuntu24.04": (3, 12)}


def test_the_tools_that_build_horovod_are_locked_for_the_oldest_python_of_a_base():
    """Of the lock for 3.11 the CUDA variant of tensorflow-keras2, on Ubuntu 22.04, could install nothing."""
    pythons = {
        next(python for release, python in PYTHONS.items() if release in base)
        for image in FRAMEWORKS
        for base in bases(TEXTS[image]).values()
    }
    lock = (ROOT / "images/horovod/requirements.txt").read_text(encoding="utf-8")
    told = re.search(r"--universal --python-version (\d+)\.(\d+) ", lock)
    assert told is not None
    assert tuple(map(int, told.groups())) == min(pythons) == (3, 10)


# --- Our own rules ---------------------------------------------------------------------------


def instructions(text):
    """(instruction, rest) in order, continued lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    split = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [(word.upper(), " ".join(rest[0].split()) if rest else "") for word, *rest in split]


def stages(text):
    """The instructions of each stage, without those above the first."""
    found = []
    for word, rest in instructions(text):
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest))
    return found


def bases_come_by_argument_and_digest(text):
    """Every FROM names an argument, and every such argument is pinned."""
    named = [rest.split()[0] for word, rest in instructions(text) if word == "FROM"]
    # With the registry's host: without one each engine looks elsewhere.
    pinned = re.compile(r"[\w-]+(\.[\w-]+)+(:\d+)?/[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")
    return named == ["${BUILD_IMAGE}", "${BASE_IMAGE}"] and all(
        pinned.fullmatch(value) for value in bases(text).values()
    )


def everything_installed_is_hashed(text):
    """pip and uv install from a lock with hashes, or the wheel that was just built."""
    commands = [
        command
        for word, rest in instructions(text)
        if word == "RUN"
        for command in rest.split("&&")
        if re.search(r"\b(pip|uv pip) (install|sync)\b", command)
    ]
    return bool(commands) and all(
        "--require-hashes" in each
        or "--no-deps --python /opt/runtime/bin/python /build/wheel/" in each
        for each in commands
    )


def nothing_comes_from_the_net_by_hand(text):
    """The package curl is for jobs; here it fetches nothing."""
    fetched = r"\b(curl|wget) +['\"$-]|https?:|\bADD\b|git clone"
    return re.search(fetched, strip_comments(text)) is None


def strip_comments(text):
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def nothing_is_started_or_opened_unasked(text):
    """The ssh server is there for whoever starts it."""
    last = stages(text)[-1]
    started = [rest for word, rest in last if word in {"CMD", "ENTRYPOINT"}]
    return started == ['["python"]'] and not [word for word, _ in last if word == "EXPOSE"]


def only_the_runtime_and_the_trainers_are_copied(text):
    copied = [rest for word, rest in stages(text)[-1] if word == "COPY"]
    return copied == [
        "--from=builder /opt/runtime /opt/runtime",
        "trainer /opt/trainyard/trainer",
    ]


LABELS = ("title", "description", "source", "revision", "version", "base.name", "base.digest")


def it_is_labelled(text):
    labels = " ".join(rest for word, rest in stages(text)[-1] if word == "LABEL")
    return all(f"org.opencontainers.image.{each}=" in labels for each in LABELS)


def package_lists_do_not_stay(text):
    updates = [rest for word, rest in instructions(text) if "apt-get update" in rest]
    return bool(updates) and all(
        "--no-install-recommends" in each and "rm -rf /var/lib/apt/lists/*" in each
        for each in updates
    )


def no_argument_brings_an_index(text):
    """An index may hold a password: it comes as a secret, which no layer keeps."""
    kept = [rest for word, rest in instructions(text) if word in {"ARG", "ENV"}]
    return not any(re.search(r"INDEX|PIP_|PROXY|TOKEN|PASSWORD", each) for each in kept)


RULES = {
    bases_come_by_argument_and_digest: ("${BUILD_IMAGE} AS", "debian:bookworm AS"),
    everything_installed_is_hashed: ("sync --require-hashes", "sync"),
    nothing_comes_from_the_net_by_hand: ("python3 -m venv", "curl https://x | sh; python3 -m venv"),
    nothing_is_started_or_opened_unasked: ('CMD ["python"]', 'CMD ["/usr/sbin/sshd", "-D"]'),
    only_the_runtime_and_the_trainers_are_copied: ("COPY trainer /opt", "COPY . /opt"),
    it_is_labelled: ("org.opencontainers.image.revision", "revision"),
    package_lists_do_not_stay: ("rm -rf /var/lib/apt/lists/*", "true"),
    no_argument_brings_an_index: ("ARG GPU_OPERATIONS=none", "ARG PIP_INDEX_URL"),
}


# An image of one's own may copy files of its folder, too.
OF_OURS = {only_the_runtime_and_the_trainers_are_copied}
KEPT = [
    (image, rule)
    for image in IMAGES
    for rule in RULES
    if image in FRAMEWORKS or rule not in OF_OURS
]


@pytest.mark.parametrize(("image", "rule"), KEPT, ids=lambda each: getattr(each, "__name__", each))
def test_every_dockerfile_keeps_our_rules(image, rule):
    assert rule(TEXTS[image])


# As docs/adding-an-image.md has it: behind the common text another registry, more packages and a file.
OWN_BASE = f"registry.example.com:5000/team/base-images/debian:12@sha256:{'a' * 64}"
OWN_STEPS = """\
COPY images/mine/company-ca.pem /usr/local/share/ca-certificates/company-ca.crt
RUN apt-get update && apt-get install -y --no-install-recommends ffmpeg && rm -rf /var/lib/apt/lists/*
USER root:root
"""


@pytest.mark.parametrize("rule", [each for each in RULES if each not in OF_OURS])
def test_the_rules_admit_steps_of_ones_own(rule):
    text = re.sub(r"(?m)^(ARG BASE_IMAGE)=.*$", rf"\g<1>={OWN_BASE}", TEXTS["pytorch"])
    own = text.replace("USER root:root\n", OWN_STEPS)
    assert len(own) > len(text)
    assert OWN_BASE in own
    assert rule(own)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_each_rule_refuses_a_dockerfile_that_breaks_it(rule):
    text = TEXTS["pytorch"]
    old, new = RULES[rule]
    assert old in text
    assert not rule(text.replace(old, new))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("image", IMAGES)
def test_what_the_dockerfile_copies_is_in_its_context(image, variant):
    recipe = read_recipe(image, variant, ROOT)
    copied = [rest.split()[:-1] for word, rest in instructions(recipe.text) if word == "COPY"]
    copied = [words for words in copied if "--from=builder" not in words]
    sources = [each for words in copied for each in words if not each.startswith("--")]
    mounted = re.findall(r"type=bind,source=([\w/]+)", recipe.text)
    for source in (*sources, *mounted):
        place = source
        for name in ("IMAGE", "LOCK"):
            place = place.replace(f"${{{name}}}", recipe.arguments[name])
        assert any(each == place or each.startswith(f"{place}/") for each in recipe.files), place


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("image", FRAMEWORKS)
def test_horovod_is_built_and_asked_for_what_the_variant_needs(image, variant):
    """The build ends where check.py misses a transport, NCCL of the CUDA variant too."""
    recipe = read_recipe(image, variant, ROOT)
    (step,) = [
        rest for word, rest in instructions(recipe.text) if word == "RUN" and "build.py" in rest
    ]
    assert 'check.py --framework "$FRAMEWORK" --gpu-operations "$GPU_OPERATIONS"' in step
    assert recipe.arguments["FRAMEWORK"] == FRAMEWORKS[image]
    assert recipe.arguments["GPU_OPERATIONS"] == {"cpu": "none", "cuda": "nccl"}[variant]
