"""The bill of materials: valid, complete, and the same twice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.images.runtimes import list_images, lock_file
from tests import needs

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "images" / "sbom.py"
HOROVOD = ROOT / "images" / "horovod" / "sdist.txt"
# Asked of the environment itself, by another way than the script's own.
LISTING = """
import glob, re, sysconfig
for path in glob.glob(sysconfig.get_path("purelib") + "/*.dist-info/METADATA"):
    text = open(path, encoding="utf-8").read()
    print(*(re.search(f"^{key}: (.+)$", text, re.M)[1] for key in ("Name", "Version")))
"""


def write_bill(python, lock, out):
    subprocess.run(
        [python, SCRIPT, "--name", "x", "--lock", lock, "--horovod", HOROVOD, "--out", out],
        check=True,
    )
    return json.loads(out.read_text())


def of_kind(bill, kind):
    return {
        (each["name"], each["version"]): each
        for each in bill["components"]
        if each["purl"].startswith(f"pkg:{kind}/")
    }


@pytest.fixture(scope="module", params=list_images(ROOT))
def runtime(request, tmp_path_factory):
    """An installed runtime: its image, its interpreter and its bill."""
    python = needs.runtime(request.param)
    out = tmp_path_factory.mktemp("sbom") / "sbom.json"
    return request.param, python, write_bill(python, lock_file(request.param, ROOT), out)


def test_it_lists_every_distribution_that_is_installed(runtime):
    _, python, bill = runtime
    answer = subprocess.run([python, "-c", LISTING], capture_output=True, text=True, check=True)
    installed = {tuple(line.split()) for line in answer.stdout.splitlines()}
    normal = {(name.lower().replace("_", "-").replace(".", "-"), v) for name, v in installed}
    assert len(normal) > 50
    assert set(of_kind(bill, "pypi")) == normal


def test_every_distribution_of_the_lock_has_the_locks_hashes(runtime):
    image, _, bill = runtime
    listed = of_kind(bill, "pypi")
    without = [name for name, each in listed.items() if "externalReferences" not in each]
    assert without == []
    lock = lock_file(image, ROOT).read_text()
    for (name, _), each in listed.items():
        (reference,) = each["externalReferences"]
        kind = "source-distribution" if name == "horovod" else "distribution"
        assert reference["type"] == kind
        hashes = [each["content"] for each in reference["hashes"]]
        assert hashes
        source = HOROVOD.read_text() if name == "horovod" else lock
        assert all(f"sha256:{each}" in source for each in hashes), name


def test_two_bills_of_one_environment_are_the_same_bytes(runtime, tmp_path):
    image, python, bill = runtime
    again = write_bill(python, lock_file(image, ROOT), tmp_path / "sbom.json")
    assert again == bill


def test_it_keeps_the_official_schema(runtime, checkov):
    """The schema's files come with cyclonedx-python-lib, which Checkov brings."""
    from jsonschema import Draft7Validator
    from referencing import Registry, Resource

    _, _, bill = runtime
    (schemas,) = checkov.glob("lib/python*/site-packages/cyclonedx/schema/_res")
    names = {
        "bom": "bom-1.6.SNAPSHOT.schema.json",
        "spdx": "spdx.SNAPSHOT.schema.json",
        "jsf": "jsf-0.82.SNAPSHOT.schema.json",
    }
    texts = {key: json.loads((schemas / name).read_text()) for key, name in names.items()}
    registry = Registry().with_resources(
        [(each["$id"], Resource.from_contents(each)) for each in texts.values()]
    )
    validator = Draft7Validator(texts["bom"], registry=registry)
    assert [error.message for error in validator.iter_errors(bill)] == []
    broken = {**bill, "components": [{**bill["components"][0], "type": "no such type"}]}
    assert list(validator.iter_errors(broken))


def test_debians_packages_are_listed_where_there_are_any(tmp_path, runtime):
    _, _, bill = runtime
    try:
        answer = subprocess.run(["dpkg-query", "-W"], capture_output=True, text=True, check=True)
    except OSError:
        pytest.skip("not a Debian machine")
    assert answer.stdout
    assert any(name == "libc6" for name, _ in of_kind(bill, "deb"))


def test_a_version_that_the_lock_does_not_know_is_listed_without_hashes(tmp_path):
    lock = tmp_path / "lock.txt"
    lock.write_text("pytest==0.0.1 \\\n    --hash=sha256:" + "a" * 64 + "\n")
    bill = write_bill(sys.executable, lock, tmp_path / "sbom.json")
    ours = [each for (name, _), each in of_kind(bill, "pypi").items() if name == "pytest"]
    assert len(ours) == 1
    assert "externalReferences" not in ours[0]
