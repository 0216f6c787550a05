package shop

import scala.collection.mutable.{Map, Set}

sealed trait Priced {
  def price: Int
}

case class Order(number: Int) extends Priced {
  override def price: Int = {
    number match {
      case 0 => 1
    }
  }
}

object Shop {
  type Orders = List[Order]

  /* def gone: Int = 1 */
  def total(orders: Orders): Int = {
    orders.map(_.price).sum
  }
}
