defmodule Regatta.Api do
  @moduledoc "What the phones ask: follow other boats, look at the table."
  def handle(["follow", race, boats]) do
    Regatta.Viewer.follow(race, Enum.uniq(String.split(boats, ",")))
    "following"
  end

  def handle(["table", race]) do
    case :ets.lookup(:regatta_table, race) do
      [{_, rows}] -> Enum.map(Enum.take(rows, 10), fn {b, m} -> [b, ?:, Integer.to_string(m), ?\s] end)
      [] -> "-"
    end
  end

  def handle(_), do: "?"
end

defmodule Regatta.Viewer do
  @moduledoc "The subscription of one phone; lives in the connection's process."
  alias Regatta.Broker

  def follow(race, boats) do
    flush()
    case Process.get(:filters) do
      nil -> :ok
      old -> Broker.unsubscribe(self(), old)
    end

    filters = for b <- boats, do: [{:race, race}, {:boat, b}, {:min_speed, rem(String.length(b) * 7, 5)}, {:leg, :any}]
    :ok = Broker.subscribe(self(), filters)
    Process.put(:filters, filters)
  end

  # the connection takes the latest events out of its mailbox before each answer
  def flush do
    receive do
      {:regatta_event, _} -> flush()
    after
      0 -> :ok
    end
  end
end

defmodule Regatta.Broker do
  @moduledoc """
  Events of the boats go to the subscribers whose filters match. Filters form a tree: filters with the same
  beginning share their nodes.
  """
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def subscribe(pid, filters), do: GenServer.call(__MODULE__, {:subscribe, pid, filters}, :infinity)
  def unsubscribe(pid, filters), do: GenServer.call(__MODULE__, {:unsubscribe, pid, filters}, :infinity)
  def publish(event), do: GenServer.cast(__MODULE__, {:event, event})

  def init(_), do: {:ok, %{subscriptions: [], tree: %{}}}

  def handle_call({:subscribe, pid, filters}, _from, s) do
    subs = Enum.reduce(filters, s.subscriptions, fn f, acc -> [{f, pid} | acc] end)
    tree = Enum.reduce(filters, s.tree, fn f, t -> Map.update(t, Enum.take(f, 2), [{pid, f}], &[{pid, f} | &1]) end)
    {:reply, :ok, %{s | subscriptions: subs, tree: tree}}
  end

  def handle_call({:unsubscribe, pid, filters}, _from, s) do
    s = Enum.reduce(filters, s, fn f, s -> remove(pid, f, s) end)
    {:reply, :ok, s}
  end

  def handle_cast({:event, {race, boat, _, _} = event}, s) do
    for {pid, _} <- Map.get(s.tree, [{:race, race}, {:boat, boat}], []), do: send(pid, {:regatta_event, event})
    {:noreply, s}
  end

  # takes one filter out, and the nodes of the tree that nobody needs any more
  defp remove(pid, filter, s) do
    subs = Enum.reject(s.subscriptions, &(&1 == {filter, pid}))
    wanted = for {f, _} <- subs, do: Enum.take(f, 2)
    tree =
      if Enum.member?(wanted, Enum.take(filter, 2)),
        do: Map.update!(s.tree, Enum.take(filter, 2), &List.delete(&1, {pid, filter})),
        else: Map.delete(s.tree, Enum.take(filter, 2))
    %{s | subscriptions: subs, tree: tree}
  end
end

defmodule Regatta.Buoys do
  @moduledoc "The trackers on the boats: 40 positions a second."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    :ets.new(:regatta_table, [:named_table, :public, read_concurrency: true])
    :timer.send_interval(25, :position)
    {:ok, 0}
  end

  def handle_info(:position, n) do
    nr = :rand.uniform(400)
    race = "r#{rem(nr, 20)}"
    Regatta.Broker.publish({race, "b#{nr}", n, :rand.uniform(30)})
    rows = case :ets.lookup(:regatta_table, race) do
      [{_, r}] -> r
      [] -> for i <- 1..20, do: {"b#{i}", i}
    end
    :ets.insert(:regatta_table, {race, Enum.map(rows, fn {b, m} -> {b, m + :rand.uniform(3)} end)})
    {:noreply, n + 1}
  end
end
