"""Documents made from the published schemas: no leaf is lost, and every job file that is written can be planned."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from jobs.engines.local.engine import LocalEngine
from jobs.jobfile.read import load_job
from jobs.launching.imports.draft import Choices
from jobs.launching.imports.importing import import_documents, write_files
from jobs.launching.plan import plan_on
from tests.fakes.gangs import make_environment
from tests.jobs.launching.imports.generated import SCHEMAS, documents, leaf_keys

NAMES = sorted(each.stem for each in SCHEMAS.glob("*.json"))


UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, suppress_health_check=UNHURRIED)
@given(data=st.data())
def test_every_leaf_is_told_of_and_every_job_can_be_planned(name: str, data: st.DataObject) -> None:
    check_import(name, data)


@pytest.mark.faults
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=400, suppress_health_check=UNHURRIED)
@given(data=st.data())
def test_every_leaf_of_many_documents_is_told_of(name: str, data: st.DataObject) -> None:
    check_import(name, data)


def check_import(name: str, data: st.DataObject) -> None:
    """Import a document of a kind and version that is drawn: no leaf is lost, its job is planned."""
    document = data.draw(documents(name))
    as_mpi = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as folder:
        path, into = Path(folder, "job.json"), Path(folder, "made")
        path.write_text(json.dumps(document), encoding="utf-8")
        imported = import_documents([path], into, Choices(as_mpi=as_mpi))
        assert [each.key for each in imported.told] == list(leaf_keys(document))
        environment = make_environment(Path(folder, "runs"), nodes=1000, processes=256)
        for file in write_files(imported, into):
            if file.name not in ("README.md", "clusters.yaml"):
                loaded = load_job(str(file))
                assert (loaded.job.cluster, loaded.job.launcher != "none") in (
                    (None, True),
                    (None, False),
                )
                job = structs.replace(loaded.job, inputs={})
                plan_on(job, loaded.code, LocalEngine(environment))
