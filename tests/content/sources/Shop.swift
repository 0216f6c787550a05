import Foundation

protocol Priced {
    func price() -> Int
}

struct Order: Priced {
    let number: Int

    init(number: Int) {
        self.number = number
    }

    func price() -> Int {
        return number
    }
}

final class Shop {
    private var orders: [Order] = []
}

enum State: String {
    case open
    case closed
}

extension Shop: CustomStringConvertible {
    var description: String { "shop" }
}

typealias Orders = [Order]

func total(_ orders: Orders) -> Int {
    guard let first = orders.first else { return 0 }
    return orders.reduce(first.number) { $0 + $1.number }
}
