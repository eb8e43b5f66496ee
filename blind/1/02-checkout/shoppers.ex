defmodule Checkout.Shoppers do
  @moduledoc "Shoppers: put 3..6 things into the cart, pay, think."
  alias Checkout.Api

  def start(n) do
    for i <- 1..n, do: Task.Supervisor.start_child(Checkout.Requests, fn -> Process.sleep(:rand.uniform(2_000)); shop(i) end)
    :ok
  end

  defp shop(i) do
    for _ <- 1..(2 + :rand.uniform(4)) do
      {:ok, _} = Api.add_item(i, "SKU-#{:rand.uniform(5_000)}", :rand.uniform(3))
      Process.sleep(50 + :rand.uniform(200))
    end

    {:ok, _} = Api.pay(i, Enum.random(Checkout.Tax.regions()))
    Process.sleep(200 + :rand.uniform(600))
    shop(i)
  end
end
