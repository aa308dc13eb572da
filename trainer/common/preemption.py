"""Notices that this machine is about to be taken away: SIGTERM, or Azure's Scheduled Events.

Where a rank notices, all ranks write a checkpoint and leave with exit code 75; so they do, with 1, where a
rank cannot go on.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import threading
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import FrameType
from typing import Any, cast
from urllib.parse import urljoin

from trainer.common.errors import TrainingError
from trainer.common.messages import warn
from trainer.common.world import World

EXIT_CODE = 75
POLL_S = 1.0
TIMEOUT_S = 3.0
# The service starts on its first call and may take two minutes for it.
FAILURES_TO_WARN_AT = 120
# Where every Azure VM answers; not routed beyond the host. Documented at
# https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
AZURE_SCHEDULED_EVENTS = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
OWN_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
MACHINE_NAME = re.compile(r"[\w.-]{1,80}")
# Reboot, Redeploy and Terminate end the process just like Preempt; Freeze does not.
ENDING_EVENTS = {"Preempt", "Terminate", "Reboot", "Redeploy"}
# A move to another host may be announced a week ahead; leaving then would only be repeated.
LEAVE_BEFORE = timedelta(minutes=2)


class Preempted(Exception):
    """Raised on all ranks at the same step once one of them was asked to leave."""


class Notice:
    """Watches for a request to leave; `reason` says whose, None while there is none.

    `failure` is why this rank cannot go on, though its weights are as good as ever.
    """

    def __init__(self, *, say: Callable[[str], None] = warn) -> None:
        self.reason: str | None = None
        self.failure: TrainingError | None = None
        self._say = say

    def fail(self, failure: TrainingError) -> None:
        """End the training after the step under way, with a checkpoint; the first failure counts."""
        self.failure = self.failure or failure

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
        pause = threading.Event()
        own_name: str | None = None
        num_failures = 0
        while self.reason is None:
            try:
                # Events of a whole scale set come to each of its machines.
                own_name = own_name or _name(_get(urljoin(url, OWN_NAME)))
            except (OSError, ValueError, http.client.HTTPException):
                own_name = None
            try:
                event = ending_event(json.loads(_get(url)), own_name, datetime.now(UTC))
                num_failures = 0
            except (OSError, ValueError, http.client.HTTPException) as error:
                event = None
                num_failures += 1
                if num_failures == FAILURES_TO_WARN_AT:
                    self._say(f"Scheduled Events do not answer at {url}: {error}")
            if event is not None:
                self.reason = self.reason or f"Azure's scheduled event {event}"
            pause.wait(POLL_S)


def events_url(option: str | None, world: World) -> str | None:
    """Give the URL that this rank polls: of all ranks of a machine only the first does."""
    if world.local_rank != 0:
        return None
    return AZURE_SCHEDULED_EVENTS if option == "azure" else option


def ending_event(document: Any, own_name: str | None, now: datetime) -> str | None:
    """Give the type of the first event that is about to end this machine's processes.

    `own_name` is the machine's name as `Resources` has it; without one every event counts. Raises
    ValueError for what is no document of Scheduled Events.
    """
    try:
        events = cast("list[dict[str, Any]]", document["Events"])
        for event in events:
            is_ours = own_name is None or own_name in event["Resources"]
            if event["EventType"] in ENDING_EVENTS and is_ours and _is_near(event, now):
                return str(event["EventType"])
    except (TypeError, KeyError) as error:
        message = f"no document of Scheduled Events: {error}"
        raise ValueError(message) from None
    return None


def _name(answer: bytes) -> str:
    text = answer.decode().strip()
    if not MACHINE_NAME.fullmatch(text):
        message = f"no name of a machine: {text[:80]}"
        raise ValueError(message)
    return text


def _is_near(event: dict[str, Any], now: datetime) -> bool:
    if event.get("EventStatus") == "Started":
        return True
    try:
        return parsedate_to_datetime(event["NotBefore"]) - now <= LEAVE_BEFORE
    except (KeyError, TypeError, ValueError):  # no time is said: it may be now
        return True


def _get(url: str) -> bytes:
    # An address that proxies must never see: it is this machine's own.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"Metadata": "true"})  # noqa: S310
    with opener.open(request, timeout=TIMEOUT_S) as answer:
        return cast("bytes", answer.read())
