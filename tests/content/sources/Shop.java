package shop;

import java.util.List;

/** A shop. */
public class Shop<T extends Comparable<T>> {
    private final List<T> orders;

    public Shop(List<T> orders) {
        this.orders = orders;
    }

    @Override
    public String toString() {
        return "Shop{" + orders + "}";
    }

    interface Priced {
        int price();
    }

    enum State {
        OPEN,
        CLOSED;

        boolean isOpen() {
            return this == OPEN;
        }
    }

    record Line(String name, int price) implements Priced {}
}
