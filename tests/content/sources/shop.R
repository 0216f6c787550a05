library(stats)

#' The price of an order
price <- function(order) {
  order$number * 2
}

# not_a_function <- function(x) x

total.orders = function(orders, ...) {
  add <- function(sum, order) {
    sum + price(order)
  }
  Reduce(add, orders, 0)
}

`%shop%` <- function(a, b) a
note <- "half <- function(x)"
