defmodule Seats.Application do
  use Application

  @impl true
  def start(_type, _args) do
    children = [
      Seats.Stats,
      Seats.Plan,
      {Task.Supervisor, name: Seats.Bookings},
      Seats.Expirer
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Seats.Supervisor)
  end
end

defmodule Seats.Plan do
  @moduledoc "Who has which seat of which train: {train, seat} => holder."
  use GenServer
  @table __MODULE__

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def free?(train, seat), do: :ets.lookup(@table, {train, seat}) == []
  def take(train, seat, who), do: :ets.insert(@table, {{train, seat}, who, System.monotonic_time(:second)})
  def expire(age) do
    limit = System.monotonic_time(:second) - age
    :ets.select_delete(@table, [{{:_, :_, :"$1"}, [{:<, :"$1", limit}], [true]}])
  end

  @impl true
  def init(_) do
    :ets.new(@table, [:named_table, :public, :ordered_set, read_concurrency: true])
    {:ok, nil}
  end
end

defmodule Seats.Allocator do
  @moduledoc """
  Reserves seats side by side. There may be several nodes, and a seat must not be sold twice,
  so the search and the reservation are done under a lock of the whole cluster.
  """
  alias Seats.{Payments, Plan, Stats}

  def reserve(train, count, customer) do
    t0 = System.monotonic_time(:millisecond)

    result =
      :global.trans({:seat_allocation, self()}, fn ->
        with {:ok, seats} <- find(train, count),
             :ok <- Payments.authorize(customer, count) do
          Enum.each(seats, &Plan.take(train, &1, customer))
          {:ok, seats}
        end
      end)

    Stats.add(:reserve_ms, System.monotonic_time(:millisecond) - t0)
    Stats.add(:reserve, 1)
    result
  end

  defp find(train, count) do
    0..399
    |> Enum.chunk_every(count, 1, :discard)
    |> Enum.find(fn seats -> Enum.all?(seats, &Plan.free?(train, &1)) end)
    |> case do
      nil -> {:error, :full}
      seats -> {:ok, seats}
    end
  end
end

defmodule Seats.Payments do
  @moduledoc "The bank's authorization takes some 25..60 ms."
  def authorize(_customer, count) when count > 0 do
    Process.sleep(25 + :rand.uniform(35))
    :ok
  end
end

defmodule Seats.Expirer do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  @impl true
  def init(_) do
    :timer.send_interval(5_000, :expire)
    {:ok, 0}
  end

  @impl true
  def handle_info(:expire, n), do: {:noreply, n + Seats.Plan.expire(20)}
end

defmodule Seats.Stats do
  use GenServer
  @table __MODULE__
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def add(k, n), do: :ets.update_counter(@table, k, n, {k, 0})

  @impl true
  def init(_) do
    :ets.new(@table, [:named_table, :public, write_concurrency: true])
    {:ok, nil}
  end
end
