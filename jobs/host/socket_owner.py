"""Find the user at the other end of a TCP connection of this machine (Linux).

Loopback is shared by all users of a machine, and a TCP socket does not know who connects to it.
The kernel does: it is asked for one socket by its addresses (`sock_diag(7)`), which takes 21 us
however many there are. A kernel without that, as gVisor's, is read the tables of all sockets from.
loopback.c asks by `sock_diag` inside the ranks, whose servers are not ours.
"""

from __future__ import annotations

import os
import socket
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG, as numbers of linux/sock_diag.h and linux/inet_diag.h
_BY_FAMILY = 20
_REQUEST = 1
_ANY_STATE = 0xFFFFFFFF
_NO_COOKIE = 0xFFFFFFFF
_MESSAGE = struct.Struct("=IHHII")  # nlmsghdr
_QUESTION = struct.Struct("=BBBBI")  # inet_diag_req_v2, up to its addresses
_PORTS = struct.Struct("!HH")
_ADDRESS_BYTES = 16
_REST = struct.Struct("=III")  # interface and cookie
_ANSWER = struct.Struct("=BBBB")  # inet_diag_msg, up to its addresses
_OWNER = struct.Struct("=IIIII")  # expires, two queues, uid, inode
_ADDRESSES_BYTES = _PORTS.size + 2 * _ADDRESS_BYTES + _REST.size
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
ESTABLISHED, FIN_WAIT1, FIN_WAIT2, LISTEN = 1, 4, 5, 10
_HELD = frozenset({ESTABLISHED, FIN_WAIT1, FIN_WAIT2})

Place = tuple[str, int]


def is_own_peer(connection: socket.socket) -> bool:
    """Tell whether a process of our user holds the other end; False where nobody does any more."""
    try:
        peer, own = connection.getpeername(), connection.getsockname()
    except OSError:
        return False
    # A socket that is closed already is nobody's, and older kernels call it root's.
    return _owner(_place(peer), _place(own), _HELD) == os.geteuid()


class NotOurs(ConnectionError):
    """Another user of this machine listens where our own server is expected."""


def check_own_server(connection: socket.socket) -> None:
    """Raise NotOurs where a connection within this machine came to another user's server.

    Raises ConnectionError where nobody listens there any more. To be called before a byte is sent.
    """
    host, port = _place(connection.getpeername())
    owner = listener_owner((host, port))
    if owner is None:
        message = f"the kernel reports no listener on port {port} of {host}"
        raise ConnectionError(message)
    if owner != os.geteuid():
        message = f"port {port} of {host} is held by {name_user(owner)}, another user"
        raise NotOurs(message)


def listener_owner(address: Place) -> int | None:
    """Give the user id of the listener at an address of this machine; None if there is none."""
    host, port = address[:2]
    # Without a connection of these addresses the kernel gives who would get one.
    nowhere = "0.0.0.0" if ip_address(host).version == 4 else "::"  # noqa: S104 (asked, not bound)
    return _owner((host, port), (nowhere, 0), frozenset({LISTEN}))


def name_user(uid: int) -> str:
    """Name a user of this machine in a message."""
    import pwd

    try:
        return f"user `{pwd.getpwuid(uid).pw_name}` (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _place(address: Any) -> Place:
    """Convert an address of a socket; one of IPv4 on a socket of both families to IPv4."""
    host = ip_address(address[0].partition("%")[0])
    mapped = host.ipv4_mapped if isinstance(host, IPv6Address) else None
    return str(mapped or host), address[1]


def _owner(local: Place, remote: Place, states: frozenset[int]) -> int | None:
    """Give the user id of who holds the socket of these addresses and one of these states."""
    owner = _asked(local, remote, states)
    # The answer is the same for a socket that is not there and for a kernel that cannot say.
    return _listed(local, remote, states) if owner is None else owner


def _asked(local: Place, remote: Place, states: frozenset[int]) -> int | None:
    addresses = _PORTS.pack(local[1], remote[1]) + _packed(local[0]) + _packed(remote[0])
    family = socket.AF_INET if ip_address(local[0]).version == 4 else socket.AF_INET6
    question = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE)
    question += addresses + _REST.pack(0, _NO_COOKIE, _NO_COOKIE)
    head = _MESSAGE.pack(_MESSAGE.size + len(question), _BY_FAMILY, _REQUEST, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.send(head + question)
            answer = kernel.recv(4096, socket.MSG_DONTWAIT)
    except OSError:
        return None
    if _MESSAGE.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    state = _ANSWER.unpack_from(answer, _MESSAGE.size)[1]
    start = _MESSAGE.size + _ANSWER.size
    # Where there is no such connection the kernel gives who listens at the local address.
    is_asked = answer[start : start + _PORTS.size] == addresses[: _PORTS.size]
    uid, inode = _OWNER.unpack_from(answer, start + _ADDRESSES_BYTES)[3:]
    return uid if is_asked and inode and state in states else None


def _listed(local: Place, remote: Place, states: frozenset[int]) -> int | None:
    """Look the socket up in /proc/net; a listener may also have every address."""
    found: dict[str, int] = {}
    remotes = _written(remote)
    for table in _TABLES:
        for line in table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else ():
            fields = line.split()
            is_remote = fields[2] in remotes or LISTEN in states
            if is_remote and int(fields[3], 16) in states and fields[9] != "0":
                found[fields[1]] = int(fields[7])
    wanted = [*_written(local)]
    if LISTEN in states:
        wanted += [*_written(("0.0.0.0", local[1])), *_written(("::", local[1]))]  # noqa: S104
    return next((found[each] for each in wanted if each in found), None)


def _written(address: Place) -> tuple[str, ...]:
    """Write an address as /proc/net does; one of IPv4 also as that of a socket of both families."""
    host = ip_address(address[0])
    packed = [host.packed]
    if isinstance(host, IPv4Address):
        packed.append(IPv6Address(f"::ffff:{host}").packed)
    words = (
        "".join(f"{word:08X}" for (word,) in struct.iter_unpack("=I", each)) for each in packed
    )
    return tuple(f"{each}:{address[1]:04X}" for each in words)


def _packed(host: str) -> bytes:
    packed: IPv4Address | IPv6Address = ip_address(host)
    return packed.packed.ljust(_ADDRESS_BYTES, b"\0")
