"""The stand-in Azure, and Azure's own SDKs in environments of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from jobs.blobs.credentials import our_tokens
from jobs.contracts.spec import Environment
from jobs.engines.azure_ml.client import ArmClient
from jobs.engines.azure_ml_v1.sdk import lay_sdk
from jobs.images.runtimes import PROJECT
from tests import needs
from tests.environments.laying import lay_environment
from tests.fakes.azureml import FakeAzure
from tests.fakes.azureml.client import Client
from tests.fakes.azureml.judge import read_tables


@pytest.fixture(scope="session")
def runtimes() -> dict[str, Path]:
    """What stands for the images: `pytorch` (with Horovod and mpirun) and a bare `python`."""
    return {"pytorch": needs.runtime("pytorch"), "python": Path(sys.executable)}


@pytest.fixture(scope="session")
def only_azure(
    tmp_path_factory: pytest.TempPathFactory, runtimes: dict[str, Path]
) -> Iterator[FakeAzure]:
    """One for all tests of a process, with identity-based datastores, as our stacks have them."""
    with FakeAzure(tmp_path_factory.mktemp("azure"), runtimes=runtimes) as azure:
        yield azure


@pytest.fixture(scope="module")
def standing_azure(only_azure: FakeAzure) -> Iterator[FakeAzure]:
    """The same, with nothing of another module in it."""
    yield only_azure
    only_azure.forget()


@pytest.fixture
def azure(standing_azure: FakeAzure) -> Iterator[FakeAzure]:
    """The same, without what another test has scripted."""
    yield standing_azure
    standing_azure.troubles.clear()
    standing_azure.deviations.clear()
    standing_azure.records.role_assignments.clear()
    standing_azure.records.private_endpoints.clear()


@pytest.fixture
def arm_client(azure: FakeAzure, monkeypatch: pytest.MonkeyPatch) -> Iterator[ArmClient]:
    """Speaks for somebody who is logged in, in an environment as a stack puts it out."""
    # Before this process, too, reaches nothing but the stand-in: it makes them where there are none.
    read_tables()
    for name, value in azure.environ.items():
        monkeypatch.setenv(name, value)
    our_tokens.cache_clear()
    yield ArmClient(msgspec.convert(azure.environment(), Environment))
    our_tokens.cache_clear()


@pytest.fixture
def client(azure: FakeAzure) -> Client:
    """Speaks to it as no SDK would."""
    return Client(azure)


@pytest.fixture(scope="session")
def sdk_python() -> Callable[[str], Path]:
    """The interpreter that has an SDK (`azure_ai_ml` or `azureml_core`), laid where it is not."""

    def find(name: str) -> Path:
        lock = PROJECT / "tests" / "environments" / f"{name}.txt"
        with needs.whole_environment():
            if name == "azureml_core":
                return lay_sdk()  # the engine azureml_v1's own
            return lay_environment(lock, PROJECT, what=name) / "bin" / "python"

    return find
