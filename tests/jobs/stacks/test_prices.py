"""List prices of nodes: from the table, and from what the price service said before.

The service itself is asked in tests/integration/azureml/test_money.py.
"""

from __future__ import annotations

import json
import socket
import time

import msgspec
import pytest

from jobs.stacks import prices
from jobs.stacks.prices import with_list_prices
from tests.busy import HANG_S
from tests.fakes.cloud_stack import make_cloud_environment

TABLE_DAY = "2026-06-18"
A100 = "Standard_NC24ads_A100_v4"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "trainyard" / "prices" / "westeurope-2.json"


def environment(**changes):
    made = make_cloud_environment()
    cluster = msgspec.structs.replace(made.clusters["cpu"], size=A100, **changes)
    return msgspec.structs.replace(made, clusters={"c": cluster})


def price(where):
    cluster = with_list_prices(where).clusters["c"]
    return cluster.price_per_node_hour, cluster.currency, cluster.price_as_of


def remember(cache, age_s=0.0, **said):
    cache.parent.mkdir(parents=True)
    at_s = time.time() - age_s
    cache.write_text(json.dumps({"sizes": {A100: {"at_s": at_s, **said}}}))


def today():
    return time.strftime("%Y-%m-%d", time.gmtime())


def test_the_table_has_the_dedicated_price_of_the_region_with_its_day():
    assert price(environment()) == (4.775, "USD", TABLE_DAY)
    elsewhere = msgspec.structs.replace(environment(), location="eastus")
    assert price(elsewhere) == (3.673, "USD", TABLE_DAY)


@pytest.mark.parametrize(
    "where",
    [
        environment(priority="low_priority"),
        msgspec.structs.replace(environment(), location="marsnorth"),
    ],
    ids=["low priority", "region"],
)
def test_what_the_table_does_not_have_stays_unknown(where):
    assert price(where) == (None, None, None)


@pytest.mark.parametrize(
    "product",
    [
        "Easv5 Series CloudServices",
        "Dv3 Series Cloud Services",
        "Virtual Machines Easv5 Series Windows",
    ],
)
def test_a_younger_row_of_another_product_is_not_the_price_of_the_size(product):
    def row(product, price, day, meter="E4as v5"):
        return prices._Row(
            arm_sku_name="Standard_E4as_v5",
            retail_price=price,
            meter_name=meter,
            product_name=product,
            unit_of_measure="1 Hour",
            effective_start_date=f"{day}T00:00:00Z",
            currency_code="USD",
        )

    said = prices._price_of(
        [
            row("Virtual Machines Easv5 Series", 0.226, "2021-11-01"),
            row(product, 0.41, "2026-01-01"),
            row("Virtual Machines Easv5 Series", 0.045, "2021-11-01", "E4as v5 Low Priority"),
            row(product, 0.082, "2026-01-01", "E4as v5 Low Priority"),
        ]
    )
    assert (said.dedicated, said.low_priority) == (0.226, 0.045)


def test_an_answer_kept_by_a_version_that_read_other_products_is_forgotten(cache):
    remember(cache.with_name("westeurope.json"), dedicated=8.6)
    assert price(environment()) == (4.775, "USD", TABLE_DAY)


def test_a_price_of_the_stack_is_left_alone():
    assert price(environment(price_per_node_hour=3.0, currency="EUR")) == (3.0, "EUR", None)


def test_the_local_stack_has_no_list_price():
    made = environment()
    folder = msgspec.structs.replace(made.workspace, endpoint="file:///workspace")
    here = msgspec.structs.replace(made, engine="local", workspace=folder)
    assert with_list_prices(here) is here


def test_what_the_service_said_counts_with_its_day(cache):
    remember(cache, dedicated=4.5, low_priority=0.9)
    assert price(environment()) == (4.5, "USD", today())
    assert price(environment(priority="low_priority")) == (0.9, "USD", today())


def test_a_table_that_is_younger_than_what_the_service_said_wins(cache):
    long_ago_s = time.time() - time.mktime((2026, 1, 1, 12, 0, 0, 0, 0, 0))
    remember(cache, long_ago_s, dedicated=4.5)
    assert price(environment()) == (4.775, "USD", TABLE_DAY)


def test_a_service_that_is_silent_is_not_waited_for_and_not_asked_again(monkeypatch):
    monkeypatch.delenv(prices.SWITCH)
    monkeypatch.setattr(prices, "ANSWER_S", 0.1)
    asked = []
    ask = prices._ask_in_time
    monkeypatch.setattr(prices, "_ask_in_time", lambda *what: asked.append(what) or ask(*what))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert price(environment()) == (4.775, "USD", TABLE_DAY)
        silent.settimeout(HANG_S)
        silent.accept()[0].close()
        assert price(environment()) == (4.775, "USD", TABLE_DAY)
    assert asked == [("westeurope", [A100])]


@pytest.mark.parametrize(("age_days", "is_asked"), [(6.9, False), (7.1, True)])
def test_the_service_is_asked_once_a_week(cache, monkeypatch, age_days, is_asked):
    monkeypatch.delenv(prices.SWITCH)
    asked = []

    def ask(region, sizes):
        asked.append((region, sizes))

    monkeypatch.setattr(prices, "_ask_in_time", ask)
    remember(cache, age_days * 86400, dedicated=4.5)
    assert price(environment())[0] == 4.5
    assert asked == ([("westeurope", [A100])] if is_asked else [])


@pytest.mark.parametrize("content", ["{", '{"x":' + "[" * 200_000], ids=["cut", "no end"])
def test_a_damaged_memory_is_no_memory(cache, content):
    cache.parent.mkdir(parents=True)
    cache.write_text(content)
    assert price(environment()) == (4.775, "USD", TABLE_DAY)
