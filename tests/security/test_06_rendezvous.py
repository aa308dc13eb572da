"""Finding 6: another user of the machine rewrites where the ranks of a gang find each other.

The attacker is any local user. Who stores another address in Horovod's rendezvous or in torch's
store sits between the ranks: reads and changes gradients, and has what they unpickle run.
"""

from __future__ import annotations

import http.client
from contextlib import closing

from jobs.engines.local.horovod_store import RendezvousServer
from tests.fakes.other_user import as_other_user, exchange, needs_root

pytestmark = needs_root
PUT = b"PUT /global/0 HTTP/1.1\r\nContent-Length: 8\r\n\r\nattacker"


def test_horovods_rendezvous_takes_orders_from_our_user_only() -> None:
    with closing(RendezvousServer()) as server:
        mine = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
        mine.request("PUT", "/global/0", b"127.0.0.1:1")
        assert mine.getresponse().read() == b""
        assert as_other_user(lambda: exchange(("127.0.0.1", server.port), PUT)) == ""
        mine.request("GET", "/global/0")
        answer = mine.getresponse()
        assert (answer.status, answer.read()) == (200, b"127.0.0.1:1")
        mine.close()
