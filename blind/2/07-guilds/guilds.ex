defmodule Guilds.Application do
  use Application

  def start(_type, _args) do
    children = [
      Guilds.Cluster,
      Guilds.Outbox,
      Guilds.Profiles,
      {Registry, keys: :unique, name: Guilds.Names},
      {DynamicSupervisor, name: Guilds.Supervisor.Guilds, strategy: :one_for_one}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Guilds.Supervisor)
  end
end

defmodule Guilds.Cluster do
  @moduledoc "Which session node a user lives on (consistent hashing). Was a GenServer.call; ETS since then, so that all can read."
  use GenServer
  @points 200

  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def node_for(user) do
    [{:ring, _version, points}] = :ets.lookup(:guilds_cluster, :ring)
    search(points, :erlang.phash2({:user, user}, 4_294_967_296), 1, tuple_size(points))
  end

  defp search(points, _h, lo, hi) when lo >= hi, do: elem(elem(points, rem(lo - 1, tuple_size(points))), 1)

  defp search(points, h, lo, hi) do
    mid = div(lo + hi, 2)
    if elem(elem(points, mid - 1), 0) < h, do: search(points, h, mid + 1, hi), else: search(points, h, lo, mid)
  end

  def init(_) do
    :ets.new(:guilds_cluster, [:named_table, :protected, :set, read_concurrency: true])
    nodes = for i <- 1..32, do: :"sessions-#{i}@10.4.0.#{i}"

    points =
      for(node <- nodes, v <- 1..@points, do: {:erlang.phash2({node, v}, 4_294_967_296), node})
      |> Enum.sort()
      |> List.to_tuple()

    :ets.insert(:guilds_cluster, {:ring, 1, points})
    {:ok, nodes}
  end

  def handle_call(:nodes, _from, nodes), do: {:reply, nodes, nodes}
end

defmodule Guilds.Outbox do
  @moduledoc "Packs what goes to the same session node; empties itself five times a second."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def add(node, msg), do: GenServer.cast(__MODULE__, {:add, node, msg})

  def init(_) do
    :timer.send_interval(200, :flush)
    {:ok, %{waiting: %{}, sent: 0}}
  end

  def handle_cast({:add, node, msg}, s), do: {:noreply, %{s | waiting: Map.update(s.waiting, node, [msg], &[msg | &1])}}

  def handle_info(:flush, s) do
    n = s.waiting |> Map.values() |> Enum.map(&length/1) |> Enum.sum()
    {:noreply, %{s | waiting: %{}, sent: s.sent + n}}
  end

  def handle_call(:sent, _from, s), do: {:reply, s.sent, s}
end

defmodule Guilds.Profiles do
  @moduledoc "Names and colours of the users; 40000 of them."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def get(user), do: :ets.lookup_element(:guilds_profiles, user, 2)

  def init(_) do
    :ets.new(:guilds_profiles, [:named_table, :protected, read_concurrency: true])
    for u <- 1..40_000, do: :ets.insert(:guilds_profiles, {u, %{name: "user#{u}", color: rem(u, 255), roles: [:member]}})
    {:ok, nil}
  end
end

defmodule Guilds.Guild do
  use GenServer, restart: :transient

  def start_link(id), do: GenServer.start_link(__MODULE__, id, name: {:via, Registry, {Guilds.Names, id}})

  def init(id) do
    :rand.seed(:exsss, {id, 2, 3})
    Process.send_after(self(), :typed, :rand.uniform(1000))
    {:ok, %{id: id, members: for(_ <- 1..30, do: :rand.uniform(40_000)), log: []}}
  end

  # somebody writes: everyone who looks at the channel gets it
  def handle_info(:typed, s) do
    author = Guilds.Profiles.get(hd(s.members))
    text = "message #{:rand.uniform(1000)} of #{author.name}"

    for user <- Enum.take_random(s.members, 8) do
      Guilds.Outbox.add(Guilds.Cluster.node_for(user), {user, text})
    end

    Process.send_after(self(), :typed, 150 + :rand.uniform(300))
    {:noreply, %{s | log: Enum.take([text | s.log], 50)}}
  end
end

defmodule Guilds.Load do
  def start(n) do
    for i <- 1..n, do: {:ok, _} = DynamicSupervisor.start_child(Guilds.Supervisor.Guilds, {Guilds.Guild, i})
  end
end
