"""What becomes of the keys of Batch AI's documents, where that is not plain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.launching.imports.batchai_limits import duration_s
from jobs.launching.imports.draft import Choices, unique
from jobs.launching.imports.importing import Imported, import_documents, write_files
from jobs.launching.imports.json_text import parse_json_text
from jobs.launching.imports.leaves import Leaves

SCRIPT = {"pythonScriptFilePath": "/opt/train.py"}
MOUNTED = "$AZ_BATCHAI_JOB_MOUNT_ROOT/scripts/deep/train.py"
CLUSTER = {"vmSize": "STANDARD_NC6", "scaleSettings": {"manual": {"targetNodeCount": 2}}}


def imported(
    folder: Path, documents: dict[str, Any], *, code: Path | None = None, as_mpi: bool = False
) -> Imported:
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))
    paths = [folder / name for name in documents]
    return import_documents(paths, folder / "made", Choices(code=code, as_mpi=as_mpi))


def import_job(folder: Path, job: dict[str, Any], **choices: Any) -> tuple[dict[str, Any], Any]:
    """The job file that comes of a job, and its report by key: outcome, and how."""
    made = imported(folder, {"job.json": {"properties": job}}, **choices)
    text = next((text for name, text in made.files.items() if name.endswith(".yaml")), None)
    told = {each.key.removeprefix("properties."): each for each in made.told}
    return (yaml.safe_load(text) if text else {}), told


def last_line(job: dict[str, Any]) -> str:
    return str(job["command"][2].strip().splitlines()[-1])


@pytest.mark.parametrize(
    ("nodes", "processes", "expected", "refused"),
    [
        (2, 8, (2, 4), []),
        (2, None, (2, 1), []),
        (3, 2, (2, 1), ["nodeCount"]),
        (2, 5, (2, 2), ["horovodSettings.processCount"]),
        (2, 0, (2, 1), ["horovodSettings.processCount"]),
        (5000, None, (1, 1), ["nodeCount"]),
        (0, None, (1, 1), ["nodeCount"]),
    ],
)
def test_a_total_of_processes_is_divided_by_the_nodes(
    tmp_path: Path, nodes: int, processes: int, expected: tuple[int, int], refused: list[str]
) -> None:
    for name in ("processCount", "numberOfProcesses"):
        settings = SCRIPT if processes is None else {**SCRIPT, name: processes}
        job, told = import_job(tmp_path, {"nodeCount": nodes, "horovodSettings": settings})
        assert (job["nodes"], job["processes_per_node"]) == expected
        found = [
            key.replace("numberOfProcesses", "processCount") for key in told if told[key].reason
        ]
        assert found == refused


@pytest.mark.parametrize(
    ("settings", "nodes", "launcher"),
    [
        ({"pyTorchSettings": SCRIPT}, 1, "none"),
        ({"pyTorchSettings": SCRIPT}, 2, "torch"),
        ({"pyTorchSettings": {**SCRIPT, "communicationBackend": "MPI"}}, 2, "mpi"),
        ({"tensorFlowSettings": SCRIPT}, 1, "none"),
        ({"tensorFlowSettings": SCRIPT}, 2, "tensorflow"),
        ({"horovodSettings": SCRIPT}, 1, "horovod"),
        ({"customMpiSettings": {"commandLine": "./a.out"}}, 2, "mpi"),
        ({"customToolkitSettings": {"commandLine": "./a.out"}}, 1, "none"),
    ],
)
def test_a_toolkit_decides_the_launcher(
    tmp_path: Path, settings: dict[str, Any], nodes: int, launcher: str
) -> None:
    job, told = import_job(tmp_path, {"nodeCount": nodes, **settings})
    assert (job["launcher"], job["nodes"]) == (launcher, nodes)
    assert [key for key in told if told[key].reason] == []


@pytest.mark.parametrize("name", ["cntk", "caffe", "caffe2", "chainer"])
def test_a_dead_framework_is_refused_by_name_or_carried_on_as_mpi(
    tmp_path: Path, name: str
) -> None:
    document = {"nodeCount": 2, f"{name}Settings": {**SCRIPT, "commandLineArgs": "-v 1"}}
    job, told = import_job(tmp_path, document)
    assert job == {}
    assert name in str(told[f"{name}Settings.commandLineArgs"].reason).lower()
    assert all(each.reason for each in told.values())
    job, told = import_job(tmp_path, document, as_mpi=True)
    assert (job["launcher"], last_line(job)) == ("mpi", 'python "/opt/train.py" -v 1')
    assert not any(each.reason for each in told.values())


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "mpirun -np 4 --hostfile $AZ_BATCHAI_MPI_HOST_FILE python a.py 'x y'",
            (2, 2, "python a.py 'x y'"),
        ),
        ("mpiexec -ppn 2 -n 4 ./a.out -v", (2, 2, "./a.out -v")),
        ("/usr/bin/mpirun --mca btl tcp --allow-run-as-root -np 1 ./a.out", (1, 1, "./a.out")),
        ("mpiexec -ppn 2 -n 2 ./a.out", (1, 2, "./a.out")),
        ("mpirun ./a.out", (2, 1, "./a.out")),
        ("mpirun -np 3 ./a.out", None),
        ("mpirun -np $N ./a.out", None),
        ("source x; mpirun -np 2 ./a.out", None),
        ("mpirun -np 2 ./a.out | tee log", None),
        ("mpirun -x SEED=1 -np 2 ./a.out", None),
        ("mpirun -np 2 --strange ./a.out", None),
        ("mpirun -np 2", None),
    ],
)
def test_an_mpirun_is_taken_off_or_refused(
    tmp_path: Path, command: str, expected: tuple[int, int, str] | None
) -> None:
    document = {"nodeCount": 2, "customToolkitSettings": {"commandLine": command}}
    job, told = import_job(tmp_path, document)
    if expected is None:
        assert job == {}
        assert "mpirun" in str(told["customToolkitSettings.commandLine"].reason) or "nodes" in str(
            told
        )
    else:
        assert (job["nodes"], job["processes_per_node"], last_line(job)) == expected
        assert job["launcher"] == "mpi"
        refused = [] if expected[0] == document["nodeCount"] else ["nodeCount"]
        assert [key for key in told if told[key].reason] == refused


def test_a_custom_toolkit_runs_on_the_first_node_only(tmp_path: Path) -> None:
    document = {
        "nodeCount": 3,
        "customToolkitSettings": {"commandLine": "python /opt/a.py *.txt | wc"},
    }
    job, told = import_job(tmp_path, document)
    assert (job["nodes"], last_line(job)) == (1, "python /opt/a.py *.txt | wc")
    assert [key for key in told if told[key].reason] == ["nodeCount"]


def test_a_script_on_a_share_is_found_by_the_longest_end_of_its_path(tmp_path: Path) -> None:
    document = {"nodeCount": 1, "pyTorchSettings": {"pythonScriptFilePath": MOUNTED}}
    job, told = import_job(tmp_path, document)
    assert "code" not in job
    assert "--code DIR" in told["pyTorchSettings.pythonScriptFilePath"].reason
    assert job["inputs"] == {"scripts": {"path": "./data/scripts"}}
    for place, link in (("train.py", "scripts/deep"), ("deep/train.py", "scripts")):
        code = tmp_path / link.replace("/", "-")
        (code / place).parent.mkdir(parents=True)
        for each in ("train.py", place):
            (code / each).write_text("")
        job, told = import_job(tmp_path, document, code=code)
        assert job["code"] == f"../{code.name}"
        assert f'ln -sn "$PWD" "$AZ_BATCHAI_JOB_MOUNT_ROOT/{link}"' in job["command"][2]
        assert "inputs" not in job
        assert told["pyTorchSettings.pythonScriptFilePath"].reason is None


def test_a_script_is_sought_in_the_folder_of_the_code_only(tmp_path: Path) -> None:
    (tmp_path / "code" / "scripts").mkdir(parents=True)
    (tmp_path / "train.py").write_text("")
    place = "pyTorchSettings.pythonScriptFilePath"
    for path, is_mounted in (
        ("$AZ_BATCHAI_JOB_MOUNT_ROOT/scripts/../../train.py", False),
        ("$AZ_BATCHAI_INPUT_DATASET/train.py", False),
        ("$AZ_BATCHAI_INPUT_DATA/train.py", True),
    ):
        document = {
            "pyTorchSettings": {"pythonScriptFilePath": path},
            "inputDirectories": [{"id": "DATA", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/scripts"}],
        }
        job, told = import_job(tmp_path, document, code=tmp_path / "code")
        assert ("code" in job, told[place].reason is not None) == (False, is_mounted), path


def test_directories_and_variables_have_names_of_their_own(tmp_path: Path) -> None:
    job, told = import_job(
        tmp_path,
        {
            "pyTorchSettings": SCRIPT,
            "inputDirectories": [{"id": "DATA", "path": "/a"}, {"id": "DATA", "path": "/b"}],
            "outputDirectories": [
                {"id": "MODEL", "pathPrefix": "/x"},
                {"id": "Model", "pathPrefix": "/x"},
            ],
            "environmentVariables": [
                {"name": "A", "value": "$HOME/x"},
                {"name": "B", "value": "plain"},
            ],
        },
    )
    assert [key for key in told if told[key].reason] == [
        *("inputDirectories[1].id", "inputDirectories[1].path"),
        *("outputDirectories[1].id", "outputDirectories[1].pathPrefix"),
    ]
    assert (job["env"], job["outputs"]) == ({"B": "plain"}, {"MODEL": {}})
    for line in ('AZ_BATCHAI_INPUT_DATA="/a"', 'A="$HOME/x"'):
        assert f"\nexport {line}\n" in job["command"][2]


def test_a_path_is_of_the_longest_mount_that_holds_it(tmp_path: Path) -> None:
    shares = [
        {
            "azureFileUrl": f"https://a.file.core.windows.net/{name}?sig=abc",
            "relativeMountPath": path,
        }
        for name, path in (("x", "data"), ("y", "data/deep"))
    ]
    arguments = "$AZ_BATCHAI_JOB_MOUNT_ROOT/data/deep/in"
    document = {
        "pyTorchSettings": {**SCRIPT, "commandLineArgs": arguments},
        "mountVolumes": {"azureFileShares": shares},
    }
    job, told = import_job(tmp_path, document)
    root, output = "$AZ_BATCHAI_JOB_MOUNT_ROOT/data/deep", "$TRAINYARD_OUTPUT_DATA_DEEP"
    assert f'\naim "{root}" "in" "{output}"\n' in job["command"][2]
    became = told["mountVolumes.azureFileShares[0].azureFileUrl"].became
    assert became == "README.md: the share https://a.file.core.windows.net/x"


def test_secrets_are_known_before_the_rest_is_read(tmp_path: Path) -> None:
    vaults = "https://v.vault.azure.net"
    job, told = import_job(
        tmp_path,
        {
            "pyTorchSettings": {**SCRIPT, "commandLineArgs": "--x plain-words"},
            "secrets": [
                {"name": "HIDDEN", "value": "plain-words"},
                {"name": "KEPT", "valueSecretReference": {"secretUrl": f"{vaults}/secrets/x/0"}},
                {"name": "ODD", "valueSecretReference": {"secretUrl": f"{vaults}/keys/x"}},
            ],
        },
    )
    assert last_line(job) == 'python "/opt/train.py" --x "${HIDDEN}"'
    assert job["secrets"] == {"HIDDEN": "hidden", "KEPT": "x"}
    assert [key for key in told if told[key].reason] == [
        *("secrets[2].name", "secrets[2].valueSecretReference.secretUrl"),
    ]


def test_texts_of_a_shell_stay_as_they_are(tmp_path: Path) -> None:
    arguments = "-a $HOME ${rank} '*.txt' \"a b\" \\\n  pos | tee $AZ_BATCHAI_STDOUTERR_DIR/log"
    job, _ = import_job(tmp_path, {"pyTorchSettings": {**SCRIPT, "commandLineArgs": arguments}})
    written = job["command"][2]
    assert written.endswith(f'python "/opt/train.py" {arguments.replace("${rank}", "$${rank}")}\n')


@pytest.mark.parametrize("text", ["it's", 'say "x', "a\0b", "x" * 40_000, "\ud800"])
def test_texts_that_no_shell_takes_are_refused(tmp_path: Path, text: str) -> None:
    job, told = import_job(tmp_path, {"pyTorchSettings": {**SCRIPT, "commandLineArgs": text}})
    assert last_line(job) == 'python "/opt/train.py"'
    assert told["pyTorchSettings.commandLineArgs"].reason


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("P7D", 604800),
        ("PT1H30M", 5400),
        ("1.02:03:04", 93784),
        ("00:10:00", 600),
        ("7 days, 0:00:00", 604800),
        ("1 day, 1:00:00", 90000),
        ("PT0S", None),
        ("soon", None),
        ("", None),
    ],
)
def test_lengths_of_time_are_read_in_each_spelling(text: str, seconds: float | None) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8G", "8g"),
        ("512m", "512m"),
        ("2 GB", "2g"),
        ("1073741824", "1048576k"),
        ("lots", None),
        ("0g", None),
    ],
)
def test_sizes_of_shared_memory_are_written_in_small_letters(
    tmp_path: Path, text: str, size: str | None
) -> None:
    container = {"imageSourceRegistry": {"image": "r.io/a:1"}, "shmSize": text}
    job, told = import_job(tmp_path, {"pyTorchSettings": SCRIPT, "containerSettings": container})
    assert (job.get("shm_size"), job["image"]) == (size, "r.io/a:1")
    assert bool(told["containerSettings.shmSize"].reason) is (size is None)


def test_names_and_older_spellings_are_converted(tmp_path: Path) -> None:
    job, told = import_job(
        tmp_path,
        {
            "name": "My job (2nd try)",
            "experimentName": "a b",
            "priority": -5,
            "toolType": "pyTorch",
            "pyTorchSettings": SCRIPT,
            "environmentVariables": [
                {"name": "RANK", "value": "1"},
                {"name": "a-b", "value": "1"},
                {"name": "EMPTY"},
            ],
        },
    )
    assert (job["name"], job["experiment"], job["priority"]) == ("My-job-2nd-try", "a-b", "low")
    assert job["env"] == {"EMPTY": ""}
    assert [key for key in told if told[key].reason] == [
        *("environmentVariables[0].name", "environmentVariables[0].value"),
        *("environmentVariables[1].name", "environmentVariables[1].value"),
    ]


def test_a_project_has_clusters_whose_names_and_mounts_its_jobs_find(tmp_path: Path) -> None:
    mounts = {
        "azureFileShares": [
            {"azureFileUrl": "https://a.file.core.windows.net/x", "relativeMountPath": "data/deep"}
        ]
    }
    cluster = {**CLUSTER, "name": "My_Very-Long.Name", "nodeSetup": {"mountVolumes": mounts}}
    job = {
        "cluster": {"id": "/subscriptions/x/clusters/my_very-long.name"},
        "pyTorchSettings": {**SCRIPT, "commandLineArgs": "$AZ_BATCHAI_MOUNT_ROOT/data/deep/in"},
    }
    made = imported(tmp_path, {"job.json": job, "cluster.json": {"properties": cluster}})
    written = yaml.safe_load(made.files["job.yaml"])
    assert written["inputs"] == {"data_deep": {"path": "./data/data_deep"}}
    assert written["outputs"] == {"data_deep": {}}
    assert "cluster" not in written
    assert yaml.safe_load(made.files["clusters.yaml"])["config"]["trainyard:clusters"] == {
        "my-very-l": {
            "size": "Standard_NC4as_T4_v3",
            "priority": "dedicated",
            "min_nodes": 2,
            "max_nodes": 2,
            "idle_s": 120,
        }
    }
    assert "1 x K80 of 12 GB, 56 GB memory; 0.9 USD an hour" in made.files["clusters.yaml"]
    assert "1 x T4 of 16 GB, 28 GB memory; 0.526 USD an hour" in made.files["clusters.yaml"]
    outcomes = {each.key: each.outcome for each in made.told}
    assert outcomes["cluster.id"] == "converted"


def test_a_cluster_that_was_scaled_to_0_has_room_for_its_jobs(tmp_path: Path) -> None:
    paused = {**CLUSTER, "name": "cpu", "scaleSettings": {"manual": {"targetNodeCount": 0}}}
    job = {"cluster": {"id": "/clusters/cpu"}, "nodeCount": 3, "horovodSettings": SCRIPT}
    made = imported(tmp_path, {"job.json": job, "cluster.json": {"properties": paused}})
    cluster = yaml.safe_load(made.files["clusters.yaml"])["config"]["trainyard:clusters"]["cpu"]
    assert ("min_nodes" in cluster, cluster["max_nodes"]) == (False, 3)


@pytest.mark.parametrize(("persist", "least"), [("true", 2), ("false", None)])
def test_a_projects_cluster_keeps_its_nodes_where_it_persists(
    tmp_path: Path, persist: str, least: int | None
) -> None:
    cluster = {**CLUSTER, "name": "gpu"}
    project = {"clusterName": "gpu", "persistCluster": persist, "experimentName": "e"}
    documents = {
        "cluster.json": {"properties": cluster},
        "project.json": {**project, "sourceScript": "train.py"},
    }
    made = imported(tmp_path, documents)
    written = yaml.safe_load(made.files["clusters.yaml"])["config"]["trainyard:clusters"]["gpu"]
    assert written.get("min_nodes") == least


@pytest.mark.parametrize(
    ("settings", "nodes", "is_kept"),
    [
        ({"horovodSettings": SCRIPT}, 2, True),
        ({"pyTorchSettings": SCRIPT}, 2, True),
        ({"customMpiSettings": {"commandLine": "./a.out"}}, 2, False),
    ],
)
def test_an_image_of_ones_own_is_kept_where_its_ranks_start_in_containers(
    tmp_path: Path, settings: dict[str, Any], nodes: int, is_kept: bool
) -> None:
    container = {"imageSourceRegistry": {"image": "r.io/a:1"}}
    job, told = import_job(
        tmp_path, {"nodeCount": nodes, **settings, "containerSettings": container}
    )
    reason = told["containerSettings.imageSourceRegistry.image"].reason
    assert (job["image"] == "r.io/a:1", reason is None) == (is_kept, is_kept)


def test_a_name_that_is_taken_in_any_case_gets_a_number() -> None:
    assert unique("Data", ["data", "DATA-2"]) == "Data-3"
    assert unique("Data", ["dat"]) == "Data"


def test_what_is_refused_stays_refused() -> None:
    leaves = Leaves(parse_json_text('{"vmSize": "x"}', "a.json").root, "a.json")
    size = leaves.top.get("vmSize")
    assert size is not None
    size.refused("there is none")
    size.converted("size")
    assert [(each.outcome, each.became, each.reason) for each in leaves.close()] == [
        ("refused", None, "there is none")
    ]


def test_two_jobs_of_one_name_and_one_share_have_files_of_their_own_and_one_folder(
    tmp_path: Path,
) -> None:
    share = {"azureFileUrl": "https://a.file.core.windows.net/x", "relativeMountPath": "x"}
    job = {"pyTorchSettings": SCRIPT, "mountVolumes": {"azureFileShares": [share]}}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.json").write_text(json.dumps({"properties": job}))
    made = import_documents([tmp_path, tmp_path / "a"], tmp_path / "made", Choices())
    assert sorted(made.files) == ["README.md", "b-job.yaml", "job.yaml"]
    assert list(made.folders) == ["data/x"]
    write_files(made, tmp_path / "made")
    assert (tmp_path / "made" / "data" / "x" / "PUT-FILES-HERE.md").is_file()


def test_a_file_server_alone_leaves_nothing_to_write(tmp_path: Path) -> None:
    server = {
        "vmSize": "Standard_D2",
        "dataDisks": {"diskCount": 1},
        "strange": [{"a": None, "b": 1}],
    }
    made = imported(tmp_path, {"nfs.json": {"properties": server}})
    assert made.files == {}
    assert [each.key for each in made.told] == [
        *("properties.vmSize", "properties.dataDisks.diskCount", "properties.strange[0].b")
    ]
    assert all(each.reason for each in made.told)
