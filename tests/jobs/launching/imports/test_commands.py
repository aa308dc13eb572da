"""Command lines of `az batchai`, as scripts and texts have them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import jobs.launching.imports as import_package
from jobs.cli import VERBS

JOB = {
    "properties": {
        "nodeCount": 2,
        "cluster": {"id": "another"},
        "pyTorchSettings": {"pythonScriptFilePath": "/opt/train.py"},
        "mountVolumes": {
            "azureFileShares": [
                {
                    "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/logs",
                    "relativeMountPath": "logs",
                }
            ]
        },
    }
}
INLINE = json.dumps({"properties": {"customToolkitSettings": {"commandLine": "python x.py"}}})


def run(launching: Any, script: str, **files: Any) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Import a script beside its files; gives the exit code, the report by key, and what was written."""
    (launching.folder / "submit.sh").write_text(script, encoding="utf-8")
    for name, document in files.items():
        (launching.folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    typed = launching.type_bare("import", "submit.sh", "--into", "made", "--json")
    assert typed.out, typed.err
    answer = json.loads(typed.out)
    entries = answer["entries"]
    keys = [(each["file"], each["key"]) for each in entries]
    assert len(keys) == len(set(keys)), "a leaf is told of twice"
    written = {
        Path(each).name: yaml.safe_load(Path(each).read_text(encoding="utf-8"))
        for each in answer["files"]
        if each.endswith(".yaml")
    }
    return typed.code, {each["key"]: each["outcome"] for each in entries}, written


def cluster(written: dict[str, Any], name: str = "nc6") -> dict[str, Any]:
    return written["clusters.yaml"]["config"]["trainyard:clusters"][name]


@pytest.mark.parametrize(
    "line",
    [
        "az batchai cluster create -n nc6 --vm-size Standard_NC6 --min 0 --max 4",
        "$ az batchai cluster create --name=nc6 -s=Standard_NC6 --min=0 --max=4",
        "az batchai cluster create \\\n  -n nc6 \\\n  -s Standard_NC6 --min 0 \\\n  --max 4 # of four",
        "user@host:~$ az batchai cluster create -n nc6 \\\n> --vm-s STANDARD_NC6 --min 0 --max 4",
        "N=nc6; export S='Standard_NC6' M=4\naz batchai cluster create -n $N -s ${S} --min ${L:-0} --max \"$M\"",
        "if true; then az batchai cluster create -n nc6 -s Standard_NC6 --min 0 --max 4 || exit 1; fi",
        "ID=$(az batchai cluster create -n nc6 -s Standard_NC6 --min 0 --max 4)",
        "PS C:\\> az batchai cluster create -n nc6 `\n  -s Standard_NC6 --min 0 --max 4",
        "Don't stop. Use `az batchai cluster create` with `-f`:\n\n```\naz batchai cluster create -nnc6 -sStandard_NC6 --min 0 --max 4\n```",
    ],
)
def test_a_line_is_read_however_it_is_written(launching: Any, line: str) -> None:
    code, told, written = run(
        launching, f"#!/bin/bash\n# az batchai cluster create -n no -s X\n{line}\n"
    )
    assert (code, set(told.values()), len(told)) == (0, {"converted"}, 4)
    assert cluster(written) == {
        "size": "Standard_NC4as_T4_v3",
        "priority": "dedicated",
        "max_nodes": 4,
        "idle_s": 120,
    }


def test_options_and_the_file_that_they_name_are_one_job(launching: Any) -> None:
    script = (
        "az batchai cluster create -n nc6 -s Standard_NC6 -t 2 --afs-name data --afs-mount-path d\n"
        "az batchai experiment create -n tries\n"
        "az batchai job create -n digits -c nc6 -e tries -f job.json --storage-account-name acct "
        "--bfs-name blobs --bfs-mount-path b\n"
    )
    code, told, written = run(launching, script, job=JOB)
    assert (code, {key for key, each in told.items() if each == "refused"}) == (0, set())
    assert told["properties.cluster.id"] == "converted"
    assert sorted(written) == ["clusters.yaml", "digits.yaml"]
    assert (written["digits.yaml"]["experiment"], written["digits.yaml"]["nodes"]) == ("tries", 2)
    assert cluster(written)["min_nodes"] == 2
    text = (launching.folder / "made" / "digits.yaml").read_text(encoding="utf-8")
    for source in ("https://acct.file.core.windows.net/logs", "container acct/blobs", "/data"):
        assert source in text
    for path in ('MOUNT_ROOT/d"', 'JOB_MOUNT_ROOT/b"', 'JOB_MOUNT_ROOT/logs"'):
        assert path in text


@pytest.mark.parametrize(
    "line",
    [
        "az batchai job create -n j -r nc6 -c job.json -l eastus",
        "az batchai job create -n j --cluster-name nc6 --config job.json",
        "az batchai job create -n j --cluster nc6 --config-file ./job.json",
    ],
)
def test_both_versions_name_the_file_and_the_cluster(launching: Any, line: str) -> None:
    _, told, written = run(launching, line, job=JOB)
    assert written["j.yaml"]["nodes"] == 2
    assert told["properties.nodeCount"] == "converted"
    assert [told[key] for key in told if key in ("-r", "--cluster-name", "--cluster")] == [
        "refused"
    ]


def test_a_file_that_was_given_too_is_one_job(launching: Any) -> None:
    (launching.folder / "job.json").write_text(json.dumps(JOB), encoding="utf-8")
    (launching.folder / "submit.sh").write_text("az batchai job create -n one -f job.json\n")
    for number, names in enumerate((["."], ["job.json", "submit.sh"])):
        typed = launching.type_bare("import", *names, "--into", f"made{number}", "--json")
        jobs = [each for each in json.loads(typed.out)["files"] if each.endswith(".yaml")]
        assert jobs == [f"made{number}/one.yaml"]


def test_a_file_may_have_what_the_options_lack_alone(launching: Any) -> None:
    part = {"properties": {"scaleSettings": {"autoScale": {"maximumNodeCount": 3}}}}
    line = "az batchai cluster create -n nc6 -s Standard_NC6 "
    inner = f"cat > c.json <<EOF\n{json.dumps(part)}\nEOF\n{line} -c c.json\n"
    for number, script in enumerate((f"{line} -f part.json\n", inner)):
        (launching.folder / "made").rename(launching.folder / "old") if number else None
        code, told, written = run(launching, script, part=part)
        assert (code, len(told), cluster(written)["max_nodes"]) == (0, 4, 3)


@pytest.mark.parametrize(
    "script",
    [
        f"cat > job.json <<'EOF'\n{INLINE}\nEOF\naz batchai job create -n j -f job.json\n",
        f"cat <<-EOF | tee job.json\n\t{INLINE}\n\tEOF\naz batchai job create -n j -f job.json\n",
        f"az batchai job create -n j -f /dev/stdin <<EOF\n{INLINE}\nEOF\n",
    ],
)
def test_a_here_document_is_the_file(launching: Any, script: str) -> None:
    code, told, written = run(launching, script)
    key = "properties.customToolkitSettings.commandLine"
    assert (code, told) == (0, {"-n": "converted", "-f": "converted", key: "converted"})
    assert written["j.yaml"]["command"][2].endswith("python x.py\n")


def test_what_only_a_run_would_know_is_refused_with_its_line(launching: Any) -> None:
    script = (
        "for each in a b; do\n  az batchai cluster create -n nc6 -s Standard_NC6 --subnet $each \\\n"
        '    -w "$(whoami)" --setup-task `date` --bfs-name <container name> -x 1 word\ndone\n'
    )
    (launching.folder / "submit.sh").write_text(script)
    typed = launching.type_bare("import", "submit.sh", "--into", "made", "--json")
    told = {each["key"]: each.get("reason", "") for each in json.loads(typed.out)["entries"]}
    assert typed.code == 3
    assert "line 2 runs" in told["--subnet"]
    assert "line 3 runs" in told["--setup-task"]
    assert "template" in told["--bfs-name"]
    assert "no option" in told["(a word of its own)"]
    assert set(told) == {
        *("-n", "-s", "--subnet", "-w", "--setup-task", "--bfs-name", "-x", "(a word of its own)")
    }


def test_every_option_of_every_command_is_told_of(launching: Any) -> None:
    script = (
        "az batchai workspace create -g g -n w -l eastus\n"
        "az batchai file-server create -n nfs -s Standard_DS2 --disk-count 2 --disk-size 10 -u me -p x1y2z3w4\n"
        "az batchai cluster create -n a -s Standard_NC6 --nfs nfs --use-auto-storage --generate-ssh-keys\n"
        "az batchai cluster create -n b -s Standard_ND6s -i UbuntuLTS --vm-priority lowpriority\n"
        "az batchai job create -n j -f missing.json -c a\n"
        "az batchai job file stream -j j -f stdout.txt\n"
        "az batchai job create -h\n"
        "az batchai cluster create\n"
    )
    code, told, written = run(launching, script)
    assert (code, len(told), list(written)) == (3, 24, ["clusters.yaml"])
    assert told["cluster create (2) -s"] == "converted"
    assert told["cluster create (1) --use-auto-storage"] == "converted"
    assert told["job create (1) -f"] == "refused"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo a\naz batchai cluster create -n 'nc6\n", "submit.sh:2:30: a quote has no end"),
        ("az batchai cluster create -n c -s NC6 --max two\n", "submit.sh:1:39: "),
        (
            "cat > job.json <<EOF\n{\"properties\": {\n 'a'}}\nEOF\naz batchai job create -f job.json\n",
            "submit.sh:3:2: ",
        ),
        ("echo az batchai\n", "submit.sh:1:1: "),
    ],
)
def test_broken_scripts_end_in_one_error(launching: Any, script: str, said: str) -> None:
    (launching.folder / "submit.sh").write_text(script)
    typed = launching.type_bare("import", "submit.sh", "--into", "made")
    assert (typed.code, typed.out, typed.err.count("error:")) == (2, "", 1)
    assert said in typed.err
    assert not (launching.folder / "made").exists()


def test_verbs_that_reasons_name_are_there() -> None:
    folder = Path(import_package.__file__ or "").parent
    texts = [each.read_text(encoding="utf-8") for each in folder.glob("*.py")]
    named = {verb for text in texts for verb in re.findall(r"`launch ([a-z]+)", text)}
    assert {"cancel", "report", "data"} <= named <= set(VERBS)
