"""Finding 12, the code's half: no link in a repository takes a file of the user along.

Attacker: who made the repository or the archive that is trained from. A link in it to a key of the
user became that key's content in the run's copy of the code, and on Azure ML in the hands of the
repository's own program.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import Plan, RunRecord
from jobs.engines import load_engine
from jobs.engines.azure_ml.code_listing import read_code
from jobs.jobfile.read import CodeLocation
from jobs.launching.rerun import recorded_job
from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.gangs import make_spec
from tests.fakes.launching import Launching, use_fake_engine

JOB = "name: first\nimage: pytorch\nlauncher: none\nprocesses_per_node: 1\ncode: repo\n"
SECRET = "PRIVATE KEY"


@pytest.fixture
def launching(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Launching:
    """`launch` in a folder with a repository that has links to the user's files."""
    use_fake_engine(monkeypatch)
    monkeypatch.chdir(tmp_path)
    private = tmp_path / "home" / ".ssh"
    private.mkdir(parents=True)
    (private / "id_rsa").write_text(SECRET)
    repo = tmp_path / "repo"
    (repo / ".git").mkdir(parents=True)
    (repo / ".git" / "config").write_text(SECRET)
    (repo / "train.py").write_text("pass\n")
    (repo / "key.txt").symlink_to("../home/.ssh/id_rsa")
    (repo / "keys").symlink_to(private)
    (repo / "git").symlink_to(".git/config")
    (repo / "hop").symlink_to("key.txt")
    return Launching(tmp_path, capsys)


@pytest.mark.parametrize("words", [["plan"], ["run", "--detach"]])
def test_links_that_lead_out_are_left_out_and_named(launching: Launching, words: list[str]) -> None:
    job = launching.write_job(JOB + "script: repo/train.py\n")
    typed = launching.type(words[0], job, *words[1:])
    assert typed.code == 0, typed.err
    private = launching.folder / "home" / ".ssh"
    aims = {"git": ".git/config", "hop": "key.txt", "key.txt": "../home/.ssh/id_rsa"}
    aims["keys"] = str(private)
    why = "which is no code of the job; copy what it leads to)"
    lines = [line for line in (typed.out + typed.err).splitlines() if line.startswith("left out")]
    assert [line.split(maxsplit=2)[2] for line in lines] == [
        f"{name} (a link to {aim}, {why}" for name, aim in aims.items()
    ]


def test_nothing_of_them_is_sent_to_azure(launching: Launching) -> None:
    code = read_code(make_spec(["python", "train.py"], code=str(launching.folder / "repo")))
    assert code.listing.left_out == ("git", "hop", "key.txt", "keys")
    assert [each.name for each in code.files] == ["train.py"]
    assert SECRET.encode() not in b"".join(code.made.values())


def test_a_record_from_the_store_names_no_folder_that_is_sent(tmp_path: Path) -> None:
    """A colleague or a node that may write records has no folder of the user's taken for code."""
    spec = make_spec(["python", "train.py"], code=str(tmp_path / "home" / ".ssh"), stack="dev")
    record = RunRecord(
        schema=1,
        id="20261121-120000-0001",
        created="2026-11-21T12:00:00.000000Z",
        plan=Plan(engine="azureml", spec=spec, request=msgspec.Raw(b"{}")),
        git=None,
        image_digest=None,
        environment_digest="sha256:0",
    )
    run_dir = tmp_path / record.id
    with pytest.raises(LaunchError) as caught:
        recorded_job(record, run_dir, load_engine(make_cloud_environment()))
    assert caught.value.message == f"the code of {record.id} is not on this machine"
    (run_dir / "code").mkdir(parents=True)
    recorded = recorded_job(record, run_dir, load_engine(make_cloud_environment()))
    assert recorded.code == CodeLocation(folder=str(run_dir / "code"))
