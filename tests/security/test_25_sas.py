"""Finding 25: a SAS is shown to whatever host an environment file names.

The attacker writes the file that somebody gives to `--env` beside a `--sas-file` of his own: whoever
listens there gets all that the SAS allows. A SAS goes where a login goes, to Azure's stores alone.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jobs.blobs.store import open_data_store
from jobs.contracts.errors import EnvironmentFailure
from tests.fakes.scripted_server import answer, scripted_server
from tests.jobs.blobs.test_store import environment_of


@pytest.fixture
def sas(tmp_path: Path) -> Path:
    path = tmp_path / "sas"
    path.write_text("sv=1&sig=secret")
    path.chmod(0o600)
    return path


ELSEWHERE = [
    "https://evil.example",
    "https://evil.example/account.blob.core.windows.net",
    "https://account.blob.core.windows.net.evil.example",
    "https://account.blob.core.windows.net@evil.example",
    "https://account.blob.core.windows.net:444",
]
WORKSPACE = "https://westeurope.api.azureml.ms"
ON_THIS_MACHINE = ["https://127.0.0.1:1", "http://127.0.0.1:1/account"]


@pytest.mark.parametrize(
    ("engine", "endpoint"),
    [
        *(("azureml", each) for each in (*ELSEWHERE, *ON_THIS_MACHINE)),
        *(("local", each) for each in ELSEWHERE),
    ],
)
def test_a_sas_is_shown_to_stores_of_azure_alone(
    tmp_path: Path, sas: Path, engine: str, endpoint: str
) -> None:
    environment = environment_of(tmp_path, endpoint, key=None)
    if engine != "local":
        workspace = msgspec.structs.replace(environment.workspace, endpoint=WORKSPACE)
        environment = msgspec.structs.replace(environment, engine=engine, workspace=workspace)
    with pytest.raises(EnvironmentFailure) as caught:
        open_data_store(environment, sas_file=sas)
    host = "/".join(endpoint.split("/")[:3])
    assert caught.value.message == (
        f"the SAS in `{sas}` is not sent to `{host}`, which is not an Azure store"
    )
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "endpoint",
    ["https://account.blob.core.windows.net", "https://a.privatelink.blob.core.windows.net/"],
)
def test_a_store_of_azure_is_opened_with_a_sas(tmp_path: Path, sas: Path, endpoint: str) -> None:
    open_data_store(environment_of(tmp_path, endpoint, key=None), sas_file=sas)


def test_the_local_store_takes_a_sas_of_its_own(tmp_path: Path, sas: Path) -> None:
    with scripted_server(lambda _: answer(200, b"x", Content_Range="bytes 0-0/1")) as server:
        environment = environment_of(tmp_path, f"http://127.0.0.1:{server.port}/account")
        assert open_data_store(environment, sas_file=sas).read("x") == b"x"
    assert [asked.target for asked in server.asked] == ["/account/data/x?sv=1&sig=secret"]
