defmodule Shop.Order do
  @moduledoc """
  def not_a_function do
  end
  """

  @doc "The price."
  def price(%{number: number}) when number > 0 do
    half(number)
  end

  def open?(order), do: order.open

  defp half(number), do: div(number, 2)

  defmacro unless_open(order, do: block) do
    quote do: if(!unquote(order).open, do: unquote(block))
  end

  defmodule Line do
    def total(lines) do
      lines |> Enum.sum()
    end
  end
end
