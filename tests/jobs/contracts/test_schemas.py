"""The published JSON Schemas: current, complete, and of one mind with the reader."""

import json
import re
from typing import ClassVar

import jsonschema
import pytest
import yaml
from msgspec.structs import fields

from jobs.contracts.schemas import DESCRIPTIONS, SCHEMAS, job_schema, schema_text
from jobs.contracts.spec import JobFile, JobInput, JobLimits, JobRetry
from jobs.host.project import project_root
from jobs.jobfile.find import CATALOG


class Yaml12(yaml.SafeLoader):
    """YAML as editors read it today: `on` is a word, not a truth value."""

    yaml_implicit_resolvers: ClassVar[dict] = {
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:bool"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


Yaml12.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_committed_schema_is_current(name):
    path = project_root() / "docs" / "schemas" / f"{name}-1.json"
    assert path.read_text() == schema_text(name), f"launch schema {name} --output {path}"


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one_of_its_dialect(name):
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text(name)))


@pytest.mark.parametrize("struct", [JobFile, JobInput, JobLimits, JobRetry])
def test_every_key_of_a_job_is_described(struct):
    assert set(DESCRIPTIONS[struct]) == {field.name for field in fields(struct)}


@pytest.mark.parametrize("path", sorted(CATALOG.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_catalog_fits_the_schema(path):
    jsonschema.validate(yaml.load(path.read_text(), Yaml12), job_schema())


@pytest.mark.parametrize(
    ("changes", "is_right"),
    [
        ({}, True),
        ({"$schema": "job-1.json"}, True),
        ({"nodes": "max"}, True),
        ({"nodes": 0}, False),
        ({"lancher": "mpi"}, False),
        ({"module": "x"}, False),
        ({"limits": {"hang": "soon"}}, False),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(launching, changes, is_right):
    job = {"name": "a", "image": "b", "command": ["true"], **changes}
    errors = list(jsonschema.Draft202012Validator(job_schema()).iter_errors(job))
    launching.write_job(json.dumps(job), "job.json")
    assert (errors == []) is is_right
    assert (launching.type("plan", "job.json").code == 0) is is_right


def test_the_schema_is_printed_or_written(launching):
    assert launching.type_bare("schema").out == schema_text("job")
    typed = launching.type_bare("schema", "environment", "--output", "e.json")
    assert (typed.code, typed.out, typed.err) == (0, "", "wrote e.json\n")
    assert (launching.folder / "e.json").read_text() == schema_text("environment")
    typed = launching.type_bare("schema", "--output", "no/such/folder.json")
    assert (typed.code, typed.err.splitlines()[0]) == (
        1,
        "error: cannot write `no/such/folder.json`: No such file or directory",
    )
