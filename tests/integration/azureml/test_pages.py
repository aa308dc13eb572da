"""The pages of an environment on Azure: its runs and clusters, and what is done with them there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.datastructures import QueryParams

from jobs.engines.azure_ml import clusters
from jobs.engines.azure_ml.client import ArmClient
from jobs.ui.curves import Curves
from jobs.ui.doing import Doings
from jobs.ui.pages import Pages
from jobs.ui.reading import Reading
from tests.fakes.asked_pages import asked, rows_of, text_of
from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import FakeAzure

CPU = "cpu-1a2b3c"


@pytest.fixture
def pages(azure: FakeAzure, arm_client: ArmClient, tmp_path: Path) -> Iterator[Pages]:
    """The pages of the stand-in's stack, in this process; its cluster is as at first afterwards."""
    records = azure.records
    before = json.dumps(records.clusters[CPU].body)
    records.clusters[CPU].scale["nodeIdleTimeBeforeScaleDown"] = "PT0S"
    environment_file = tmp_path / "dev.json"
    environment_file.write_text(json.dumps(azure.environment()))
    yield Pages(Reading(environment_file), Curves(), Doings())
    records.clusters[CPU].body = json.loads(before)
    records.clusters[CPU].nodes.clear()


def act(pages: Pages, *words: str) -> str:
    """Do it as its page does, after the page that asks; gives what came of it."""
    query = "&".join(["place=file", *(f"word={each}" for each in words)])
    where = pages._reading.words_for("file")
    typed = " ".join(["launch", *words[:2], *where, *words[2:]])
    assert typed in text_of(pages.ask(asked(query)))
    number = pages.act(QueryParams(query)).headers["location"].rpartition("/")[2]
    assert pages._doings.find(int(number)).is_over.wait(300)
    return text_of(pages.done(asked(number=number)))


def test_a_cluster_is_kept_warm_let_go_and_resized(
    pages: Pages, azure: FakeAzure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "POLL_S", 0.05)

    def shown() -> dict[str, str]:
        head, row = rows_of(pages.clusters(asked()))
        return dict(zip(head, row, strict=True))

    before = shown()
    assert [before[each] for each in ("Cluster", "Nodes", "Idle", "Costs now")] == [
        *("cpu", "0 of 0-2", "0", "0.00 USD/h")
    ]
    assert "keeps 1 node warm" in act(pages, "cluster", "resume", "cpu")
    warm = shown()
    assert [warm[each] for each in ("Nodes", "Idle", "Costs now", "Idle costs")] == [
        *("1 of 1-2", "1", "0.272 USD/h", "0.272 USD/h")
    ]
    assert "max_nodes: 40" in act(pages, "cluster", "resize", "cpu", "40")
    assert "has no node and costs nothing" in act(pages, "cluster", "pause", "cpu")
    assert shown()["Nodes"] == "0 of 0-40"
    assert "no cluster `gone`" in act(pages, "cluster", "pause", "gone")


def test_runs_of_azure_are_listed_and_shown(pages: Pages, azure: FakeAzure, tmp_path: Path) -> None:
    launch = AzureLaunch(azure, tmp_path)
    typed = launch.type("run", launch.write_job(), "--detach", "--yes")
    run = typed.out.strip()
    assert [row[1] for row in rows_of(pages.runs(asked()))[1:]] == [run]
    page = text_of(pages.run(asked(place="file", run=run)))
    assert f"first {run}" in page
    assert "Fetch brings what there is to" in page
