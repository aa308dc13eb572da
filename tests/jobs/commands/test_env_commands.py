"""`launch env` as it is typed: what it prints, its JSON and its exit codes."""

from __future__ import annotations

import json
import os

import msgspec
import pytest

from jobs.cli import main
from jobs.contracts.spec import Cluster, Containers, Environment, Storage, Workspace
from jobs.host.environment_file import write_environment
from jobs.host.pulumi_command import as_typed_here
from jobs.host.trust import trust
from jobs.stacks import reachability
from tests.fakes.cloud_stack import make_cloud_environment


@pytest.fixture
def environment(tmp_path):
    return Environment(
        schema=1,
        stack="dev",
        engine="local",
        location="local",
        subscription_id=None,
        resource_group=None,
        workspace=Workspace(name="w", id="w", endpoint=(tmp_path / "my runs").as_uri()),
        storage=Storage(
            account="trainyard",
            blob_endpoint="http://127.0.0.1:1/trainyard",
            containers=Containers(data="data", runs="runs"),
            folder=str(tmp_path / "storage"),
        ),
        registry=None,
        key_vault=None,
        clusters={
            "cpu": Cluster(
                compute="cpu-1a2b3c",
                size="local",
                gpus_per_node=0,
                cpus_per_node=1,
                processes_per_node=2,
                rdma=False,
                priority="dedicated",
                min_nodes=0,
                max_nodes=2,
                idle_s=0,
                price_per_node_hour=None,
                currency=None,
            )
        },
        images={"pytorch": "r/pytorch@sha256:0"},
    )


@pytest.fixture
def typed(environment, tmp_path, monkeypatch, capsys):
    """Type `launch env ...` in a project with one stack that was never up."""
    file = tmp_path / "environment.json"
    write_environment(environment, file)
    (tmp_path / "Pulumi.yaml").write_text("name: trainyard\n")
    (tmp_path / "Pulumi.local.yaml").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRAINYARD_STACK", raising=False)

    def run(*words, with_file=True):
        code = main(["env", *words, *(["--env", str(file)] if with_file else [])])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_show_names_every_part(typed, tmp_path):
    code, out, err = typed("show")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split() for line in lines if line] == [
        ["stack", "dev"],
        ["engine", "local"],
        ["location", "local"],
        ["workspace", (tmp_path / "my runs").as_uri()],
        ["storage", "http://127.0.0.1:1/trainyard"],
        ["containers", "data,", "runs"],
        ["storage", "folder", str(tmp_path / "storage")],
        ["image", "pytorch", "r/pytorch@sha256:0"],
        ["CLUSTER", "COMPUTE", "SIZE", "NODES", "CORES", "GPUS", "PROCESSES", "PRICE/NODE/H"],
        ["cpu", "cpu-1a2b3c", "local", "0-2", "1", "0", "2", "unknown"],
    ]


def test_show_as_json_is_the_environment(typed, environment):
    code, out, _ = typed("show", "--json")
    assert code == 0
    assert msgspec.json.decode(out, type=Environment) == environment


def test_check_ends_with_1_and_names_the_part_that_cannot_be_used(typed):
    code, out, _ = typed("check", "--json")
    assert code == 1
    found = json.loads(out)
    checked = {each["part"]: each["ok"] for each in found["parts"]}
    assert checked == {"storage": False, "workspace": True, "cluster cpu": True}
    # A file is a copy of a stack's outputs: it has no changes to come.
    assert found["changes"] is None
    code, out, _ = typed("check")
    assert code == 1
    assert "FAILED" in out
    assert "`pulumi up -s dev`" in out


def test_check_sees_a_workspace_that_cannot_be_written_to(typed, tmp_path):
    (tmp_path / "my runs").write_text("a file in the way")
    _, out, _ = typed("check", "--json")
    assert [each for each in json.loads(out)["parts"] if each["part"] == "workspace"] == [
        {"part": "workspace", "ok": False, "detail": f"{tmp_path}/my runs cannot be written to"}
    ]


def test_check_sees_a_machine_with_fewer_cores_than_the_stack_was_made_with(environment):
    def check(cpus):
        cluster = msgspec.structs.replace(environment.clusters["cpu"], cpus_per_node=cpus)
        changed = msgspec.structs.replace(environment, clusters={"cpu": cluster})
        return reachability.check_environment(changed)[-1]

    cores = len(os.sched_getaffinity(0))
    assert check(1).ok
    too_many = check(cores + 1)
    assert not too_many.ok
    now = f"this machine has {cores} core{'s' if cores != 1 else ''} now"
    assert now in too_many.detail


@pytest.mark.parametrize(
    ("nodes", "cores", "gpus", "detail"),
    [(1, 1, 0, "up to 1 node of 1 core, 0 GPUs"), (2, 4, 1, "up to 2 nodes of 4 cores, 1 GPU")],
)
def test_check_says_how_large_a_cluster_is(environment, nodes, cores, gpus, detail):
    cluster = msgspec.structs.replace(
        environment.clusters["cpu"],
        size="Standard_NC4",
        max_nodes=nodes,
        cpus_per_node=cores,
        gpus_per_node=gpus,
    )
    workspace = msgspec.structs.replace(
        environment.workspace, endpoint="https://westeurope.api.azureml.ms"
    )
    changed = msgspec.structs.replace(environment, clusters={"cpu": cluster}, workspace=workspace)
    assert reachability._check_cluster("cpu", cluster, changed).detail == detail


def test_ls_lists_the_stacks_with_settings(typed):
    assert typed("ls", with_file=False) == (0, "STACK  UP\nlocal  no\n", "")
    code, out, _ = typed("ls", "--json", with_file=False)
    assert (code, json.loads(out)) == (0, [{"stack": "local", "up": False}])


@pytest.mark.parametrize("verb", ["show", "export", "check", "repair"])
def test_a_stack_that_is_not_up_ends_with_2_and_says_what_to_type(typed, verb):
    code, out, err = typed(verb, with_file=False)
    assert (code, out) == (2, "")
    hint = as_typed_here("uv run pulumi up -s local")
    assert err == f"error: stack `local` is not up\n\nhint: {hint}\n"


def test_an_export_may_name_the_engine_of_the_first_api(typed, environment, tmp_path):
    project = FakePulumi(tmp_path)
    (tmp_path / "Pulumi.dev.yaml").touch()
    words = ("export", "-s", "dev", "--engine", "azureml_v1", "--refresh")
    cloud = make_cloud_environment()
    project.say("stack output", msgspec.json.encode(cloud).decode())
    code, out, _ = typed(*words, with_file=False)
    exported = msgspec.json.decode(out, type=Environment)
    assert (code, exported) == (0, msgspec.structs.replace(cloud, engine="azureml_v1"))
    project.say("stack output", msgspec.json.encode(environment).decode())
    code, _, err = typed(*words, with_file=False)
    assert (code, "--engine is for stacks on Azure" in err) == (2, True)


@pytest.fixture
def previewed(typed, environment, tmp_path, monkeypatch):
    """Type `launch env check -s dev` where Pulumi previews what the test says."""
    project = FakePulumi(tmp_path)
    project.say("stack output", msgspec.json.encode(environment).decode())
    (tmp_path / "Pulumi.dev.yaml").touch()
    monkeypatch.setattr(reachability, "check_environment", lambda _: project.parts)

    def run(steps, *words, diagnostics=()):
        preview = {"steps": steps, "diagnostics": diagnostics}
        project.say("preview", json.dumps(preview), code=1 if diagnostics else 0)
        return typed("check", "-s", "dev", *words, with_file=False)

    run.project = project
    return run


class FakePulumi:
    """A script in Pulumi's place that answers each of its commands from a file."""

    def __init__(self, root):
        self.root = root
        self.parts = [reachability.PartCheck(part="storage", ok=True, detail="answers")]
        script = root / ".venv" / "bin" / "pulumi"
        script.parent.mkdir(parents=True)
        script.write_text(
            f'#!/bin/sh\necho "$@" >> "{root}/calls"\nstem="{root}/$1"\n'
            '[ "$1" = stack ] && stem="$stem $2"\ncat "$stem.out"\nexit $(cat "$stem.code")\n'
        )
        script.chmod(0o755)
        trust(root)

    def say(self, command, text, *, code=0):
        (self.root / f"{command}.out").write_text(text)
        (self.root / f"{command}.code").write_text(str(code))

    def calls(self):
        file = self.root / "calls"
        return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def compute_step(op, **state):
    states = {
        "custom": True,
        "id": "/w/computes/gpu-1",
        "parent": "urn:pulumi:dev::trainyard::trainyard:cloud:Cluster::cluster-gpu",
        **state,
    }
    kind = "azure-native:machinelearningservices:Compute"
    urn = f"urn:pulumi:dev::trainyard::trainyard:cloud:Cluster${kind}::cluster-gpu-compute"
    return {"op": op, "urn": urn, "oldState": states, "replaceReasons": ["computeName"]}


def test_check_of_a_stack_tells_its_parts_and_what_would_be_lost(previewed):
    code, out, err = previewed([compute_step("replace")])
    assert code == 3
    assert [line.split(maxsplit=4) for line in out.splitlines()] == [
        ["PART", "STATE", "DETAIL"],
        ["storage", "ok", "answers"],
        [],
        ["NAME", "KIND", "CHANGE", "STATE", "COSTS"],
        [
            *("gpu", "Compute", "replaced", "REFUSED"),
            "running jobs end; their checkpoints stay in the store (computeName)",
        ],
    ]
    assert err == (
        "previewing `pulumi up -s dev`\n"
        "error: `pulumi up -s dev` would replace or delete: gpu\n\n"
        "hint: if that is intended: launch env check -s dev --allow-replace gpu\n"
    )


def test_check_ends_with_0_where_what_is_lost_was_allowed(previewed):
    code, out, _ = previewed([compute_step("replace")], "--allow-replace", "gpu")
    assert code == 0
    assert "allowed" in out
    code, out, _ = previewed([compute_step("update")], "--only", "changes")
    assert (code, out) == (0, "changed in place: gpu\n")
    code, out, err = previewed([compute_step("same")], "--allow-replace", "gpu")
    assert code == 0
    assert out.endswith("\nno resource changes\n")
    assert "warning: --allow-replace gpu has no effect" in err


def test_check_shows_what_is_in_what_is_lost_and_a_few_of_many_names(previewed):
    def step(op, kind, name, identifier):
        states = {"custom": True, "id": identifier}
        urn = f"urn:pulumi:dev::trainyard::azure-native:{kind}::{name}"
        return {"op": op, "urn": urn, "oldState": states, "newState": states}

    steps = [
        step("delete", "storage:StorageAccount", "cloud-data-account", "/g/ty"),
        step("same", "authorization:RoleAssignment", "cloud-access-data", "/g/ty/roles/r"),
        *(step("update", "keyvault:Vault", f"cloud-{number}", "/v") for number in range(9)),
        step("create", "keyvault:Vault", "cloud-vault", ""),
    ]
    code, out, _ = previewed(steps, "--only", "changes")
    assert code == 3
    *rows, updated, created = out.splitlines()
    assert [line.split(maxsplit=5) for line in rows] == [
        ["NAME", "IN", "KIND", "CHANGE", "STATE", "COSTS"],
        [
            *("cloud-data-account", "StorageAccount", "deleted", "REFUSED", "every"),
            "blob in it (datasets, checkpoints, logs, outputs); they are not counted",
        ],
        [
            *("cloud-access-data", "cloud-data-account", "RoleAssignment", "goes", "along"),
            "REFUSED  the access that it gives",
        ],
    ]
    assert updated == (
        "changed in place: cloud-0, cloud-1, cloud-2, cloud-3, cloud-4, cloud-5, cloud-6, "
        "cloud-7 and 1 more"
    )
    assert created == "new: cloud-vault"


def test_check_as_json_is_one_object_also_where_it_refuses(previewed):
    code, out, err = previewed([compute_step("delete")], "--json")
    assert code == 3
    found = json.loads(out)
    assert found["parts"] == [{"part": "storage", "ok": True, "detail": "answers"}]
    assert [(each["name"], each["change"]) for each in found["changes"]["losses"]] == [
        ("gpu", "deleted")
    ]
    assert "error: `pulumi up -s dev` would replace or delete: gpu" in err


def test_check_refuses_before_it_fails_and_fails_where_nothing_is_lost(previewed):
    down = reachability.PartCheck(part="storage", ok=False, detail="is down")
    previewed.project.parts = [down]
    assert previewed([compute_step("replace")])[0] == 3
    assert previewed([compute_step("same")])[0] == 1
    assert previewed([compute_step("same")], "--only", "changes")[0] == 0
    wrong = {"severity": "error", "message": "error: Pulumi.dev.yaml: no\n"}
    code, out, err = previewed([], diagnostics=[wrong])
    assert code == 1
    assert "is down" in out
    assert "error: `pulumi preview -s dev` failed: Pulumi.dev.yaml: no\n" in err


def test_each_half_of_check_leaves_the_other_alone(previewed):
    code, out, _ = previewed([compute_step("delete")], "--only", "parts")
    assert (code, "gpu" in out) == (0, False)
    assert previewed.project.calls() == ["stack"]
    previewed([compute_step("same")], "--only", "changes")
    assert previewed.project.calls() == ["stack", "preview"]


@pytest.mark.parametrize(
    ("words", "with_file", "message"),
    [
        (
            ["--only", "changes"],
            True,
            "is a copy of a stack's outputs; only a stack can be previewed",
        ),
        (["--allow-replace", "gpu"], True, "is a copy of a stack's outputs"),
        (["--only", "parts", "--allow-replace", "gpu"], False, "has no effect with --only parts"),
        (["--only", "half"], False, "invalid choice: 'half'"),
    ],
)
def test_check_refuses_options_that_say_nothing_together(typed, words, with_file, message):
    code, out, err = typed("check", *words, with_file=with_file)
    assert (code, out) == (2, "")
    assert message in err


def test_a_file_that_is_no_environment_ends_with_2(typed, tmp_path):
    (tmp_path / "environment.json").write_text('{"schema": 7}')
    code, out, err = typed("show")
    assert (code, out) == (2, "")
    assert "has schema 7, this launch reads schema 1" in err
    assert "hint: update launch" in err
