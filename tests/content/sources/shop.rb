require 'json'

module Shop
  class Order < Base
    attr_reader :number

    def initialize(number)
      @number = number
    end

    def self.open
      new(1)
    end

    def open?
      @number.positive? && lines.each do |line|
        return false unless line
      end
    end
  end
end

def total(orders) = orders.sum(&:number)
