"""Joins the stand-in of Pulumi's provider and the one that runs jobs."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.naming import Names
from tests.fakes import azure_native
from tests.fakes.azure_native.service import principal_of
from tests.fakes.azure_native.store import Store
from tests.fakes.azureml import Deviation, FakeAzure, Place, Request, firewall
from tests.fakes.azureml.messages import Reply
from tests.fakes.azureml.records import Cluster
from tests.fakes.azureml.subscription import adopt
from tests.fakes.one_azure import azure_cli
from tests.fakes.one_azure.deviations import troubles_of

COMPUTES = "/computes/"
SCALE = "scaleSettings"


class OneAzure(FakeAzure):
    """An Azure ML workspace whose clusters are those of a subscription's folder."""

    def __init__(
        self, folder: Path, subscription: Path, *, runtimes: Mapping[str, Path], names: Names
    ) -> None:
        self.subscription = subscription
        workspace_id = names.id_of("Microsoft.MachineLearningServices/workspaces", names.workspace)
        # As documented of workspaces without public access.
        self._always = set() if names.stage == "dev" else {Deviation.PRIVATE_HOST_ONLY}
        place = Place(
            workspace_guid=principal_of(workspace_id),
            subscription_id=azure_native.SUBSCRIPTION_ID,
            tenant_id=azure_native.TENANT_ID,
            resource_group=names.resource_group,
            workspace=names.workspace,
            location="swedencentral",
            workspace_account=names.workspace_account,
            data_account=names.data_account,
            registry=names.registry,
            key_vault=names.key_vault,
        )
        super().__init__(folder, runtimes=runtimes, place=place)
        self.records.clusters.clear()
        self._seen = 0.0
        self._store = Store(subscription)
        self.bin = folder / "bin"
        self.deviate()

    @property
    def environ(self) -> dict[str, str]:
        """What `pulumi`, `launch` and `az` need; PATH begins with the programs of this Azure."""
        found = super().environ
        return found | {
            "PATH": f"{self.bin}:{found['PATH']}",
            azure_native.FOLDER: str(self.subscription),
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        }

    def install(self) -> None:
        """Write the provider and `az`. Raises EnvironmentFailure where a model cannot be had."""
        azure_native.install(self.bin, python=sys.executable)
        program = self.bin / "az"
        words = [sys.executable, "-P", azure_cli.__file__, str(self.subscription)]
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)

    def live(self) -> set[str]:
        """Ids of what there is."""
        return {each["id"] for each in self._store.read()["resources"].values()}

    def close(self, account: str) -> None:
        """Let an account's firewall keep this machine out."""
        self.script(firewall(account=account))

    def open(self) -> None:
        """Let this machine in again."""
        self.troubles.clear()

    def deviate(self, *deviations: Deviation) -> None:
        """Switch these on and all others off, on both sides."""
        self.deviations.clear()
        self.deviations.update(self._always, deviations)
        troubles = json.dumps(troubles_of(deviations))
        (self.subscription / "troubles.json").write_text(troubles)

    def _answer(self, request: Request) -> Reply:
        with self.records.lock:
            self._follow()
        reply = super()._answer(request)
        if COMPUTES in request.path and request.method in {"PUT", "PATCH"}:
            with self.records.lock:
                self._tell(request.path.partition(COMPUTES)[2])
        return reply

    def _follow(self) -> None:
        """Take over what Pulumi has made or removed since, and the secrets that `az` has stored."""
        file = self.subscription / "resources.json"
        changed = file.stat().st_mtime if file.exists() else 0.0
        self.vault.secrets |= azure_cli.read_secrets(self.subscription)
        if changed == self._seen:
            return
        self._seen = changed
        resources = self._store.read()["resources"]
        workspace = self.place.workspace_id.lower()
        self.records.is_workspace_deleted = workspace not in resources
        declared = {
            record["id"].rpartition("/")[2]: record["outputs"]
            for key, record in resources.items()
            if key.startswith(workspace + COMPUTES)
        }
        self.records.role_assignments.clear()
        self.records.private_endpoints.clear()
        others = [each for each in resources.values() if COMPUTES not in each["id"]]
        adopt(self.records, [(each["token"], each["inputs"]) for each in others])
        for name in self.records.clusters.keys() - declared.keys():
            del self.records.clusters[name]
            for job in self.records.jobs.values():
                if job.spec is not None and job.spec.cluster == name:
                    job.cancel.set()
        for name, outputs in declared.items():
            body = _whole({key: outputs[key] for key in ("location", "tags", "properties")})
            scale = body["properties"]["properties"][SCALE]
            scale["nodeIdleTimeBeforeScaleDown"] = "PT1S"  # nobody waits here for two minutes
            known = self.records.clusters.get(name)
            if known is None:
                self.records.clusters[name] = Cluster(name, body)
            else:
                known.body = body

    def _tell(self, name: str) -> None:
        """Write down the scale that `launch` has set, as a refresh of Pulumi's would find it."""
        cluster = self.records.clusters.get(name.partition("/")[0])
        if cluster is None:
            return
        key = f"{self.place.workspace_id}{COMPUTES}{cluster.name}".lower()
        with self._store.writing() as state:
            live = state["resources"][key]["outputs"]["properties"]["properties"]
            live[SCALE] |= {key: cluster.scale[key] for key in ("minNodeCount", "maxNodeCount")}


def _whole(value: Any) -> dict[str, Any]:
    """Numbers as Azure has them: Pulumi's protocol knows no whole ones."""
    return json.loads(
        json.dumps(value),
        parse_float=lambda text: int(float(text)) if float(text).is_integer() else float(text),
    )
