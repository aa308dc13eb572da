"""Hosts torch's store beside a gang: run by the runtime's interpreter, not by ours.

    python torch_store.py FD PORT      (FD: a socket that listens on 127.0.0.1:PORT)

torch's ordinary start lets rank 0 listen on every interface, whatever MASTER_ADDR says. With the
store hosted here, and TORCHELASTIC_USE_AGENT_STORE in their environment, an unchanged script's
ranks are all clients of it.

The ranks import torch at the same time, and often on all the cores there are. So a child tries the
short way first: the extension module alone, 0.6 s of CPU against 3.7 (torch 2.15, 2 cores). That
rests on names which torch does not promise: where it fails, even by an abort, torch is imported
as a whole.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def main() -> int:
    """Serve until the gang ends this process."""
    listener, port = int(sys.argv[1]), int(sys.argv[2])
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        store = open_store(store_class_alone(), listener, port)
        os.write(tell, b".")
        signal.pause()
        del store
    os.close(tell)
    if os.read(ready, 1):
        os.close(listener)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) or 1
    store = open_store(import_module("torch.distributed").TCPStore, listener, port)
    signal.pause()
    del store
    return 0


def open_store(store_class: Any, listener: int, port: int) -> object:
    """Serve on a socket that listens already."""
    return store_class(
        "127.0.0.1",
        port,
        world_size=None,
        is_master=True,
        wait_for_workers=False,
        multi_tenant=True,
        master_listen_fd=listener,
    )


def store_class_alone() -> Any:
    """TCPStore from torch's extension module, without the package around it."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent
    package, distributed = ModuleType("torch"), ModuleType("torch.distributed")
    package.__path__ = [str(folder)]
    sys.modules |= {"torch": package, "torch.distributed": distributed}
    libraries = folder / "lib" / "libtorch_global_deps.so"
    if libraries.exists():
        ctypes.CDLL(str(libraries), mode=ctypes.RTLD_GLOBAL)
    extension: Any = import_module("torch._C")
    extension._c10d_init()  # noqa: SLF001 (what torch.distributed does first)
    return extension._distributed_c10d.TCPStore  # noqa: SLF001


if __name__ == "__main__":
    sys.exit(main())
