defmodule Storefront.Visitors do
  @moduledoc "People who read product pages; one of twelve page views ends in an order."
  def start(n) do
    for _ <- 1..n, do: Task.Supervisor.start_child(Storefront.Requests, fn -> loop() end)
    :ok
  end

  defp loop do
    Process.sleep(300 + :rand.uniform(1_200))
    if :rand.uniform(12) == 1, do: Storefront.Web.order(:rand.uniform(1_000_000)), else: Storefront.Web.product_page(:rand.uniform(5_000))
    loop()
  end
end
