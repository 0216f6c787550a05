using System;
using System.Collections.Generic;

namespace Shop.Orders
{
    /// <summary>One order.</summary>
    public class Order<T> : Base where T : IComparable
    {
        public int Number { get; set; }

        public Order(int number)
        {
            Number = number;
        }

        public async Task<int> Total(IEnumerable<T> lines)
        {
            int Half(int n) => n / 2;
            return Half(Number);
        }
    }

    public interface IPriced
    {
        int Price();
    }

    public struct Line { }

    public enum State { Open, Closed }

    public record Page(int Number);

    public delegate void Changed(int number);
}
