<?php

namespace Shop\Orders;

use Countable;

interface Priced
{
    public function price(): int;
}

trait Named
{
    public function name(): string
    {
        return "order {$this->number}";
    }
}

final class Order implements Priced, Countable
{
    use Named;

    public function __construct(private int $number)
    {
    }

    public function price(): int
    {
        return $this->number;
    }
}

enum State: string
{
    case Open = 'open';
}

function total(array $orders): int
{
    return array_sum(array_map(fn ($order) => $order->price(), $orders));
}
