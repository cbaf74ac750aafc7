"""What commands write as JSON: the shapes of the documents, and the JSON schemas that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

Hourly = Annotated[float, "USD an hour"]
Monthly = Annotated[float, "USD a month of 730 hours"]
Percent = Annotated[float, "percent"]
Seconds = Annotated[float, "seconds"]
Count = Annotated[int, "how many"]
Pod = Annotated[str, "namespace/name"]
Pods = Annotated[Sequence[str], "pods, each as namespace/name"]
Time = Annotated[str, "a time in RFC 3339"]
CapacityType = Annotated[str, "spot, on-demand or reserved"]
Price = Annotated[float | None, "USD an hour; null if it is unknown"]
Estimated = Annotated[bool | None, "whether the price is an estimate; null if it is unknown"]
Usd = Annotated[float, "USD"]
Nano = Annotated[int, "billionths of a USD"]
Stored = Annotated[Mapping[str, Any], "as the ledger stores it"]
