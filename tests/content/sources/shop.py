"""A module in Python."""

import functools


@functools.total_ordering
class Order:
    def __init__(self, number: int) -> None:
        self.number = number

    def __lt__(self, other: "Order") -> bool:
        return self.number < other.number

    class Line:
        async def price(self) -> int:
            return 1


def total(orders: list[Order]) -> int:
    def one(order: Order) -> int:
        return order.number

    return sum(map(one, orders))
