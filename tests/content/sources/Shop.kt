package shop.orders

import java.util.UUID

interface Priced {
    fun price(): Int
}

data class Order(val number: Int) : Priced {
    override fun price(): Int = number

    companion object {
        fun open(): Order = Order(1)
    }
}

object Shop {
    val orders = mutableListOf<Order>()
}

enum class State { OPEN, CLOSED }

typealias Orders = List<Order>

fun <T : Priced> List<T>.total(): Int {
    return sumOf { it.price() }
}
