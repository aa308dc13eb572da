"""Finds Azure's list prices of nodes in a dated table, refreshed by the public price service.

The service is asked at most once a week for a size, and not again for an hour where it was silent;
nobody waits for it longer than ANSWER_S. What neither tells stays unknown.
https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from jobs.contracts.spec import Cluster, Environment
from jobs.host.files import write_file
from jobs.host.structs import prepared

SERVICE = "https://prices.azure.com/api/retail/prices"
ANSWER_S = 2.0
FRESH_S = 7 * 86400.0
SILENCE_S = 3600.0
# `table` keeps to the table of the package, for machines that reach nothing outside.
SWITCH = "TRAINYARD_PRICES"
CURRENCY = "USD"
# In names of products, without spaces and in small letters. Both bill other things than a node of
# ours by the same size, service and meter: a license, and a classic service at the same rate.
_OTHER_PRODUCTS = ("windows", "cloudservices")
_TABLE = Path(__file__).with_name("list_prices.csv")
_MAX_PAGES = 5


class ListPrice(Struct, frozen=True, kw_only=True):
    """USD an hour for one node; `as_of` is the day on which Azure said so."""

    amount: float
    as_of: str


def with_list_prices(environment: Environment) -> Environment:
    """Add Azure's list prices to the clusters that the stack gives none.

    Blocks for ANSWER_S at most.
    """
    unpriced = {
        name: cluster
        for name, cluster in environment.clusters.items()
        if cluster.price_per_node_hour is None
    }
    if environment.workspace.is_folder or not unpriced:
        return environment
    known = list_prices(environment.location, {each.size for each in unpriced.values()})
    priced = {name: _priced(each, known) for name, each in unpriced.items()}
    return structs.replace(environment, clusters=environment.clusters | priced)


def _priced(cluster: Cluster, known: _Known) -> Cluster:
    price = known.get((cluster.size, cluster.priority))
    if price is None:
        return cluster
    return structs.replace(
        cluster, price_per_node_hour=price.amount, currency=CURRENCY, price_as_of=price.as_of
    )


_Priority = Literal["dedicated", "low_priority"]
_Known = dict[tuple[str, _Priority], ListPrice]


class _Asked(Struct, frozen=True, kw_only=True):
    """An answer of the service for a size, and its time; None without such a price."""

    at_s: float
    dedicated: float | None = None
    low_priority: float | None = None


class _Memory(Struct, frozen=True, kw_only=True):
    """Answers kept for a region; `silent_s` is when the service last did not answer."""

    silent_s: float = 0.0
    sizes: dict[str, _Asked] = {}


def list_prices(region: str, sizes: Collection[str]) -> _Known:
    """Give the known prices of sizes in a region, by size and priority."""
    listed = _read_table(region, sizes)
    known: _Known = {(size, "dedicated"): price for size, price in listed.items()}
    memory = _recall(region)
    if os.environ.get(SWITCH) != "table":
        memory = _refreshed(memory, region, sizes)
    for size in sizes:
        asked = memory.sizes.get(size)
        if asked is None:
            continue
        day = datetime.fromtimestamp(asked.at_s, UTC).date().isoformat()
        # A new version's table may be younger than what was asked for long ago.
        if asked.dedicated is not None and (size not in listed or listed[size].as_of < day):
            known[size, "dedicated"] = ListPrice(amount=asked.dedicated, as_of=day)
        if asked.low_priority is not None:
            known[size, "low_priority"] = ListPrice(amount=asked.low_priority, as_of=day)
    return known


def listed_prices(region: str) -> dict[str, ListPrice | None]:
    """Give all sizes of the table with their prices in a region; None where it has no price."""
    as_of, names, cells = _read_lines(region)
    cells += [""] * (len(names) - len(cells))
    return {
        name: ListPrice(amount=float(cell), as_of=as_of) if cell else None
        for name, cell in zip(names[1:], cells[1:], strict=True)
    }


def _read_table(region: str, sizes: Collection[str]) -> dict[str, ListPrice]:
    listed = listed_prices(region)
    return {name: price for name, price in listed.items() if name in sizes and price}


def _read_lines(region: str) -> tuple[str, list[str], list[str]]:
    """Parse the table: remarks, the day, the sizes, and then a line a region."""
    with _TABLE.open(encoding="utf-8") as file:
        lines = (line.rstrip("\n").split(",") for line in file if line[0] != "#")
        _, as_of = next(lines)
        names = next(lines)
        return as_of, names, next((line for line in lines if line[0] == region), list[str]())


def _refreshed(memory: _Memory, region: str, sizes: Collection[str]) -> _Memory:
    """Ask the service for expired prices and merge its answers."""
    now_s = time.time()
    kept = memory.sizes
    old = [size for size in sizes if not (size in kept and 0 <= now_s - kept[size].at_s < FRESH_S)]
    if not old or 0 <= now_s - memory.silent_s < SILENCE_S:
        return memory
    answer = _ask_in_time(region, sorted(old))
    if answer is None:
        memory = structs.replace(memory, silent_s=now_s)
    else:
        nothing = _Asked(at_s=now_s)
        found = {size: answer.get(size, nothing) for size in old}
        memory = _Memory(sizes=memory.sizes | found)
    _remember(region, memory)
    return memory


def _ask_in_time(region: str, sizes: Collection[str]) -> dict[str, _Asked] | None:
    """Ask the service, for a limited time; None without an answer."""
    from threading import Thread

    answers: list[dict[str, _Asked]] = []

    def ask() -> None:
        with suppress(*_failures()):
            answers.append(_ask(region, sizes))

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_S)
    return answers[0] if answers else None


def _failures() -> tuple[type[Exception], ...]:
    from http.client import HTTPException

    # A proxy's answer that is no JSON or nested without end, or an address that is none.
    return OSError, HTTPException, ValueError, RecursionError


class _Row(Struct, frozen=True, kw_only=True, rename="camel"):
    arm_sku_name: str
    retail_price: float
    meter_name: str
    product_name: str
    unit_of_measure: str
    effective_start_date: str
    currency_code: str


class _Page(Struct, frozen=True, kw_only=True, rename="pascal"):
    items: tuple[_Row, ...]
    next_page_link: str | None = None


def _ask(region: str, sizes: Collection[str]) -> dict[str, _Asked]:
    from urllib.parse import urlencode
    from urllib.request import urlopen

    named = " or ".join(f"armSkuName eq '{size}'" for size in sizes)
    wanted = (
        f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' "
        f"and priceType eq 'Consumption' and ({named})"
    )
    url: str | None = f"{SERVICE}?{urlencode({'$filter': wanted})}"
    rows: list[_Row] = []
    for _ in range(_MAX_PAGES):
        if url is None or not url.startswith("https://"):
            break
        with urlopen(url, timeout=ANSWER_S) as answer:  # noqa: S310 (https alone, see above)
            page = msgspec.json.decode(answer.read(), type=prepared(_Page))
        rows += page.items
        url = page.next_page_link
    return {size: _price_of(each for each in rows if each.arm_sku_name == size) for size in sizes}


def _price_of(rows: Iterable[_Row]) -> _Asked:
    """Pick the prices in force among a size's rows: the Linux ones, as Azure ML's nodes are."""
    now = datetime.now(UTC).isoformat()
    dated = sorted(
        (each for each in rows if each.effective_start_date <= now and _is_linux_hour(each)),
        key=lambda each: each.effective_start_date,
    )
    dedicated = low_priority = None
    for row in dated:
        if row.meter_name.endswith(" Low Priority"):
            low_priority = row.retail_price
        elif not row.meter_name.endswith(" Spot"):
            dedicated = row.retail_price
    return _Asked(at_s=time.time(), dedicated=dedicated, low_priority=low_priority)


def _is_linux_hour(row: _Row) -> bool:
    product = row.product_name.replace(" ", "").lower()
    return (
        row.unit_of_measure == "1 Hour"
        and row.currency_code == CURRENCY
        and not any(each in product for each in _OTHER_PRODUCTS)
    )


def _recall(region: str) -> _Memory:
    try:
        return msgspec.json.decode(_memory_file(region).read_bytes(), type=prepared(_Memory))
    except (OSError, msgspec.DecodeError, RecursionError):
        return _Memory()


def _remember(region: str, memory: _Memory) -> None:
    path = _memory_file(region)
    # Where it cannot be kept, it is asked for again.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, msgspec.json.encode(memory), is_synced=False)


def _memory_file(region: str) -> Path:
    from jobs.host.cache import cache_root

    # The first versions' files, without the 2, hold prices of "CloudServices", too.
    return cache_root(os.environ) / "prices" / f"{region}-2.json"
