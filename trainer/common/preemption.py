"""Notices that this machine is about to be taken away: SIGTERM, or Azure's Scheduled Events.

Where a rank notices, all ranks write a checkpoint and leave with exit code 75.
"""

from __future__ import annotations

import json
import signal
import threading
import urllib.request
from types import FrameType
from typing import Any

EXIT_CODE = 75
POLL_S = 1.0
TIMEOUT_S = 3.0
# Where every Azure VM answers; not routed beyond the host.
AZURE_SCHEDULED_EVENTS = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
# Reboot, Redeploy and Terminate end the process just like Preempt; Freeze does not.
ENDING_EVENTS = {"Preempt", "Terminate", "Reboot", "Redeploy"}


class Preempted(Exception):
    """All ranks know that one of them was asked to leave, and stand at the same step."""


class Notice:
    """Whether somebody asked this process to leave; `reason` says who, None while nobody did."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def watch(self, *, scheduled_events: str | None = None) -> None:
        """Take SIGTERM as a notice from now on, and poll the URL of Scheduled Events if given.

        Only the main thread may call it. The polling thread ends with the process.
        """
        signal.signal(signal.SIGTERM, self._on_signal)
        if scheduled_events is not None:
            threading.Thread(target=self._poll, args=(scheduled_events,), daemon=True).start()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.reason = self.reason or "SIGTERM"

    def _poll(self, url: str) -> None:
        # An address that proxies must never see: it is this machine's own.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(url, headers={"Metadata": "true"})  # noqa: S310
        pause = threading.Event()
        while self.reason is None:
            try:
                with opener.open(request, timeout=TIMEOUT_S) as answer:
                    event = ending_event(json.load(answer))
            except (OSError, ValueError):
                event = None  # the service starts on its first call, and may be slow to
            if event is not None:
                self.reason = self.reason or f"Azure's scheduled event {event}"
            pause.wait(POLL_S)


def ending_event(document: Any) -> str | None:
    """Give the type of the first event that will end this machine's processes."""
    for event in document.get("Events", []):
        if event.get("EventType") in ENDING_EVENTS:
            return str(event["EventType"])
    return None
