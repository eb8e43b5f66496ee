defmodule Seats.Travellers do
  @moduledoc "Travellers look around among the trains and book now and then, each train being a different one mostly."

  def start(n) do
    for i <- 1..n, do: {:ok, _} = Task.Supervisor.start_child(Seats.Bookings, fn -> loop(i) end)
    :ok
  end

  defp loop(i) do
    train = :rand.uniform(120)
    for s <- 0..60, do: Seats.Plan.free?(train, s)
    Process.sleep(500 + :rand.uniform(1_500))
    _ = Seats.Allocator.reserve(train, :rand.uniform(4), {:customer, i})
    loop(i)
  end
end
