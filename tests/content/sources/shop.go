package shop

import (
	"errors"
	"fmt"
)

// Order is one order.
type Order struct {
	Number int
}

type Priced interface {
	Price() int
}

type Amount int

func (o *Order) Price() int {
	return o.Number
}

func Total(orders []Priced) (int, error) {
	if len(orders) == 0 {
		return 0, errors.New("none")
	}
	sum := 0
	for _, order := range orders {
		sum += order.Price()
	}
	fmt.Println(sum)
	return sum, nil
}
