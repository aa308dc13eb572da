"""`mpirun` of the image's lock starts ranks on a second node over ssh, and they train together.

The nodes are namespaces of this machine (tests/fakes/nodes.py) with the runtime's files; `make images`
does the same in the container.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.fakes.nodes import Node, two_nodes
from tests.images.two_nodes import (
    check_trained,
    lay_run,
    mnist,
    train_by_environment,
    train_by_mpirun,
)

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of the runtime's programs."""
    return needs.runtime("pytorch").parent


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    with two_nodes(tmp_path_factory.mktemp("nodes")) as pair:
        yield pair


def environment(programs: Path, folder: Path) -> dict[str, str]:
    path = f"{programs}:{Path(shutil.which('ssh') or '/usr/bin/ssh').parent}:/usr/bin:/bin"
    return {"PATH": path, "HOME": "/root", "PYTHONPATH": str(ROOT), "AT": str(folder)}


def test_ranks_of_two_nodes_train_with_horovod_under_mpirun(
    nodes: tuple[Node, Node], programs: Path, tmp_path: Path
) -> None:
    lay_run(tmp_path, mnist("horovod"), seen_at=str(tmp_path))
    passed = ("-x", "PATH", "-x", "PYTHONPATH")
    train_by_mpirun(nodes[0], environment(programs, tmp_path), options=passed)
    check_trained(tmp_path, "horovod")


def test_ranks_of_two_nodes_train_with_ddp_by_their_variables(
    nodes: tuple[Node, Node], programs: Path, tmp_path: Path
) -> None:
    lay_run(tmp_path, mnist("ddp"), seen_at=str(tmp_path))
    train_by_environment(nodes, environment(programs, tmp_path))
    check_trained(tmp_path, "ddp")


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-bind-to", "none", "-map-by", "slot"),
        ("--bind-to", "none", "--map-by", "slot"),
        ("--map-by", "ppr:1:node"),
        ("-npernode", "1"),
        ("-x", "PATH", "-mca", "plm_rsh_agent", "ssh", "-mca", "plm_rsh_no_tree_spawn", "1"),
        ("-mca", "orte_keep_fqdn_hostnames", "t", "-mca", "oob_tcp_if_include", "eth0"),
    ],
    ids=" ".join,
)
def test_mpirun_takes_the_options_of_open_mpi_4(
    nodes: tuple[Node, Node], programs: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Azure ML types one line for Open MPI 4.1 and 5.0, which its own images have both of."""
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{node.address} slots=1\n" for node in nodes), encoding="utf-8")
    line = ["mpirun", "--allow-run-as-root", *options, "--hostfile", hosts, "hostname"]
    typed = nodes[0].run(*line, environ=environment(programs, tmp_path))
    assert sorted(typed.stdout.split()) == ["node-0", "node-1"], typed.stdout + typed.stderr
