"""The public retail-price service: no token; a filter of `eq`, with `or` between values of a key.

Beside a size's row for Linux there are, of the same service and meter, one for Windows and a younger
one for "CloudServices" at the rate of Windows. So users saw it answer for E4as v5, 0.226 and 0.41
USD, the latter since 2026-01-01 ("The price list gains lookalike meters", a public decision record
of 2026-09-30), and for E96-48ads v5 (amroja-biz/rockysurf, scripts/refresh-prices.test.mjs).
"""

from __future__ import annotations

import re
from typing import Any

from tests.fakes.azureml.messages import Reply, Request, Service, answer, on
from tests.fakes.azureml.records import SIZES

PRICES = "prices.azure.com"


class Prices(Service):
    """Lists what the sizes cost in one region; `rows` may be changed."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = [
            _row(size.name, price * times, kind, product, since)
            for size in SIZES.values()
            for kind, price in (("", size.price), (" Low Priority", size.low_priority_price))
            for product, times, since in (
                ("Virtual Machines Series", 1.0, "2024-01-01"),
                ("Virtual Machines Series Windows", 1.8, "2024-01-01"),
                ("Series CloudServices", 1.8, "2026-01-01"),
            )
        ]

    @on("GET", "/api/retail/prices")
    def prices(self, request: Request) -> Reply:
        wanted: dict[str, set[str]] = {}
        for key, value in re.findall(r"(\w+) eq '([^']*)'", request.query.get("$filter", "")):
            # The one key that rows carry by another name.
            wanted.setdefault({"priceType": "type"}.get(key, key), set()).add(value)
        currency = request.query.get("currencyCode", "USD").strip("'")
        found = [
            {**row, "currencyCode": currency}
            for row in self.rows
            if all(str(row.get(key)) in values for key, values in wanted.items())
        ]
        return answer(
            {
                "BillingCurrency": currency,
                "CustomerEntityId": "Default",
                "CustomerEntityType": "Retail",
                "Items": found,
                "NextPageLink": None,
                "Count": len(found),
            }
        )


def _row(size: str, price: float, kind: str, product: str, since: str) -> dict[str, Any]:
    meter = size.removeprefix("Standard_").replace("_", " ") + kind
    return {
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": "westeurope",
        "location": "EU West",
        "effectiveStartDate": f"{since}T00:00:00Z",
        "meterName": meter,
        "productName": product,
        "skuName": meter,
        "serviceName": "Virtual Machines",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": size,
    }
