"""Plays two nodes of a cluster: namespaces of this machine, a link between them, and sshd in each.

Nothing of this machine's own network is touched: the only link lies between the two namespaces. All of
it ends when what holds it does, which is when its standard input is closed.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.busy import Bound

PORT = 2222
START_S = 60.0
TESTBED = Path(__file__).parents[2] / ".trainyard" / "testbed"
# As process 1 of a node: a name, the keys of both nodes as /etc/ssh, and nothing of the other's.
_HOLD = """
set -e
root=${1%/} lent=$2
hostname "$3"
mount --make-rprivate /
test -z "$root" || mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"
mount --bind "$lent/ssh" "$root/etc/ssh"
test -n "$root" || { mount -t tmpfs tmpfs /run; mkdir /run/sshd; mount --bind "$lent/passwd" /etc/passwd; }
echo held
exec cat
"""
_CLIENT = f"""Host *
  Port {PORT}
  IdentityFile /etc/ssh/node_key
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""
_SERVER = f"""Port {PORT}
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/node_key.pub
StrictModes no
PidFile none
"""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node: its address, its root folder, and the process that its namespaces belong to."""

    address: str
    root: Path
    pid: int

    def start(self, words: Sequence[str | Path], environ: Mapping[str, str]) -> list[str]:
        """Give the words that start a program on the node with these variables alone."""
        enter = ["nsenter", f"--target={self.pid}", "--net", "--uts", "--mount", "--pid"]
        variables = [f"{name}={value}" for name, value in environ.items()]
        return [*enter, "chroot", str(self.root), "env", "-i", *variables, *map(str, words)]

    def run(
        self, *words: str | Path, environ: Mapping[str, str], timeout_s: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on the node to its end."""
        command = self.start(words, environ)
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )


@contextmanager
def two_nodes(folder: Path, root: Path = Path("/")) -> Iterator[tuple[Node, Node]]:
    """Two nodes with the same files, each of which reaches the other by ssh as root.

    Files that an image brings are under `root`; without one the nodes have this machine's files, and
    the sshd that tests.environments.testbed has unpacked. Skips the test where that cannot be.
    """
    sshd, libraries = _find_server(root)
    lend_keys(folder, has_pam=(root / "etc" / "pam.d" / "sshd").exists())
    with ExitStack() as stack:
        nodes = [
            Node(
                address=f"10.42.0.1{n}", root=root, pid=stack.enter_context(_held(folder, root, n))
            )
            for n in (0, 1)
        ]
        first, second = nodes
        link = ["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns"]
        _in_network(first, [*link, str(second.pid)])
        for node in nodes:
            _in_network(node, ["ip", "link", "set", "lo", "up"])
            _in_network(node, ["ip", "address", "add", f"{node.address}/24", "dev", "eth0"])
            _in_network(node, ["ip", "link", "set", "eth0", "up"])
            environ = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH": libraries}
            started = node.run(sshd, environ=environ)
            assert started.returncode == 0, started.stderr
        _wait_for(first, second)
        yield first, second


def lend_keys(folder: Path, *, has_pam: bool) -> None:
    """Write what becomes /etc/ssh of both nodes, and the user that sshd wants to be."""
    lent = folder / "ssh"
    lent.mkdir(parents=True)
    for name in ("node_key", "host_key"):
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", lent / name]
        subprocess.run(keygen, check=True)
    (lent / "ssh_config").write_text(_CLIENT, encoding="utf-8")
    pam = f"UsePAM {'yes' if has_pam else 'no'}\n"
    (lent / "sshd_config").write_text(_SERVER + pam, encoding="utf-8")
    users = Path("/etc/passwd").read_text(encoding="utf-8")
    if "\nsshd:" not in users:
        users += "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"
    (folder / "passwd").write_text(users, encoding="utf-8")


def _find_server(root: Path) -> tuple[Path, str]:
    """Find sshd as a node sees it, and the folder of its libraries."""
    for program in ("ip", "nsenter", "ssh-keygen", "unshare"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (python3 -m tests.environments.testbed)")
    tried = subprocess.run(
        ["unshare", "--net", "ip", "link", "add", "eth0", "type", "veth"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        pytest.skip(f"no network namespaces here: {tried.stderr.strip()}")
    if (root / "usr" / "sbin" / "sshd").exists():
        return Path("/usr/sbin/sshd"), ""
    unpacked = TESTBED / "usr" / "sbin" / "sshd"
    if not unpacked.exists():
        pytest.skip("sshd is not there (python3 -m tests.environments.testbed)")
    return unpacked, ":".join(str(path) for path in TESTBED.glob("usr/lib/*-linux-gnu"))


@contextmanager
def _held(folder: Path, root: Path, n: int) -> Iterator[int]:
    """Hold a node's namespaces; gives the process that is the first within."""
    flags = ["--net", "--uts", "--mount", "--pid", "--fork", "--kill-child"]
    words = ["unshare", *flags, "sh", "-c", _HOLD, "hold", str(root), str(folder), f"node-{n}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
        yield int(children.read_text())


def _in_network(node: Node, words: Sequence[str]) -> None:
    """Run a program of this machine in a node's network."""
    subprocess.run(["nsenter", f"--target={node.pid}", "--net", *words], check=True)


def _wait_for(node: Node, other: Node) -> None:
    bound = Bound(START_S)
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/root"}
    while True:
        tried = node.run("ssh", other.address, "hostname", environ=environ)
        if tried.returncode == 0:
            assert tried.stdout == "node-1\n"
            return
        bound.check(tried.stderr)
        time.sleep(0.2)
