defmodule Fleet.Application do
  use Application

  def start(_type, _args) do
    children = [
      {Registry, keys: :unique, name: Fleet.Registry},
      Fleet.Map,
      {DynamicSupervisor, name: Fleet.Vans, strategy: :one_for_one},
      {Task, fn -> for i <- 1..80, do: DynamicSupervisor.start_child(Fleet.Vans, {Fleet.Van, i}) end},
      Fleet.Gps,
      Fleet.Dispatcher
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Fleet.Supervisor)
  end
end

defmodule Fleet.Map do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def put(id, pos), do: :ets.insert(__MODULE__, {id, pos})
  def all, do: :ets.tab2list(__MODULE__)
  def init(_), do: {:ok, :ets.new(__MODULE__, [:named_table, :public, write_concurrency: true])}
end

defmodule Fleet.Van do
  @moduledoc "One van: its position, its tour of the day and the trail of the last hours"
  use GenServer

  def start_link(id), do: GenServer.start_link(__MODULE__, id, name: via(id))
  def via(id), do: {:via, Registry, {Fleet.Registry, id}}
  def position(id, pos), do: GenServer.cast(via(id), {:position, pos})
  def km(id), do: GenServer.call(via(id), :km)

  def init(id) do
    trail = for i <- 1..12_000, do: {i, 52.0 + i / 1000, 13.0 + i / 900, :moving}
    {:ok, %{id: id, trail: trail, km: 0.0, tour: for(s <- 1..40, do: %{stop: s, at: nil, street: "Street #{s}"})}, :hibernate}
  end

  def handle_cast({:position, {lat, lon} = pos}, s) do
    Fleet.Map.put(s.id, pos)
    [{n, _, _, _} | _] = s.trail
    # the vans are many, so save memory
    {:noreply, %{s | trail: [{n + 1, lat, lon, :moving} | s.trail], km: s.km + 0.01}, :hibernate}
  end

  def handle_call(:km, _from, s), do: {:reply, s.km, s, :hibernate}
end

defmodule Fleet.Gps do
  @moduledoc "Positions as they come from the gateway"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), {:tick, 1}, 3000)
    {:ok, 0}
  end

  def handle_info({:tick, k}, n) do
    Process.send_after(self(), {:tick, rem(k, 8) + 1}, 25)
    for i <- k..80//8, do: Fleet.Van.position(i, {52 + :rand.uniform(), 13 + :rand.uniform()})
    {:noreply, n + 1}
  end
end

defmodule Fleet.Dispatcher do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :look, 4000)
    {:ok, 0}
  end

  def handle_info(:look, _) do
    Process.send_after(self(), :look, 1000)
    _ = Fleet.Map.all() |> Enum.sort()
    {:noreply, Fleet.Van.km(:rand.uniform(80))}
  end
end
