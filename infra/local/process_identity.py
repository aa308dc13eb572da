"""Names one process of this machine so that a reused pid is never taken for it (Linux)."""

from __future__ import annotations

from pathlib import Path


def identify(pid: int) -> str | None:
    """Read boot id and start tick of a living process; None without one (a zombie is dead).

    `exec` keeps both, so a process can write down its own before it becomes another program.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in brackets and may hold anything, brackets too.
    fields = stat.rpartition(")")[2].split()
    state, start_tick = fields[0], fields[19]
    if state in "ZX":
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{start_tick}"


def is_alive(pid: int | None, identity: str | None) -> bool:
    """Tell whether exactly this process still runs."""
    return pid is not None and identity is not None and identify(pid) == identity
