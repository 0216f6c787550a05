'use strict';
const fs = require('fs');

class Order extends Base {
  #number = 1;
  constructor(number) {
    this.number = number;
  }

  get label() {
    return `order ${this.number}`;
  }

  handle = (event) => {
    fs.close();
  };
}

function total(orders) {
  return orders.reduce((sum, order) => sum + order.number, 0);
}

function* pages() {}

const half = (number) => {
  return number / 2;
};

Order.prototype.close = function () {};

module.exports = { total: function () {} };
