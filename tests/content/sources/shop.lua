local Order = {}
Order.__index = Order

--[[
function commented(out)
end
]]

function Order.new(number)
  local self = setmetatable({ number = number }, Order)
  return self
end

function Order:price()
  if self.number > 0 then
    return self.number
  end
end

local function total(orders)
  local function add(sum, order)
    return sum + order:price()
  end
  return add(0, orders[1])
end

Order.close = function(self) end
