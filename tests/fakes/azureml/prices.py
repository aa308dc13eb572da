"""The public retail-price service: no token; a filter of `eq`, with `or` between values of a key."""

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
            _row(size.name, price, kind)
            for size in SIZES.values()
            for kind, price in (("", size.price), (" Low Priority", size.low_priority_price))
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


def _row(size: str, price: float, kind: str) -> dict[str, Any]:
    meter = size.removeprefix("Standard_").replace("_", " ") + kind
    return {
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": "westeurope",
        "location": "EU West",
        "effectiveStartDate": "2026-01-01T00:00:00Z",
        "meterName": meter,
        "productName": "Virtual Machines Series",
        "skuName": meter,
        "serviceName": "Virtual Machines",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": size,
    }
