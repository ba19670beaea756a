"""Sends one request to the instance and rank it was planned for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prefixbench.run.addresses import Address
from prefixbench.run.client import RANK_HEADER, Client, Exchange
from prefixbench.run.planned import PlannedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Knows the addresses. With one address and several planned instances a router stands there."""

    client: Client
    addresses: Sequence[Address]
    dp_size: int
    planned_instances: int

    async def send(
        self,
        request: PlannedRequest,
        body: bytes,
        on_first_token: Callable[[], None] = lambda: None,
    ) -> Exchange:
        return await self.client.complete(
            self.address_of(request).requests_url,
            body,
            headers=self.rank_headers(request.dp_id),
            on_first_token=on_first_token,
        )

    def address_of(self, request: PlannedRequest) -> Address:
        return self.addresses[request.instance_id if len(self.addresses) > 1 else 0]

    def instance_of(self, request: PlannedRequest) -> int | None:
        """The instance that answers; None where a router chooses it."""
        return None if self.planned_instances > len(self.addresses) else request.instance_id

    def rank_headers(self, dp_id: int) -> Mapping[str, str]:
        return {RANK_HEADER: str(dp_id)} if self.dp_size > 1 else {}
