defmodule Presence.Application do
  use Application

  def start(_type, _args) do
    children = [
      Presence.Table,
      Presence.Inbox,
      Presence.Tracker,
      Presence.Audit,
      {DynamicSupervisor, name: Presence.Channels, strategy: :one_for_one}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Presence.Supervisor)
  end
end

defmodule Presence.Table do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def list(topic), do: :ets.lookup(:presence_table, topic)

  def init(_) do
    :ets.new(:presence_table, [:named_table, :public, :bag, read_concurrency: true, write_concurrency: true])
    {:ok, nil}
  end
end

defmodule Presence.Inbox do
  @moduledoc "Takes over what the other nodes say."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def init(_), do: {:ok, 0}

  def handle_info({:diff, _node, joins, leaves}, n) do
    for {t, u} <- leaves, do: :ets.delete_object(:presence_table, {t, u})
    for {t, u} <- joins, do: :ets.insert(:presence_table, {t, u})
    {:noreply, n + 1}
  end
end

defmodule Presence.Tracker do
  @moduledoc "Joins and leaves of this node; tells the other nodes of the list."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def track(topic, user), do: GenServer.call(__MODULE__, {:track, topic, user}, 10_000)
  def untrack(topic, user), do: GenServer.cast(__MODULE__, {:untrack, topic, user})

  def init(_) do
    others = System.get_env("PEERS", "") |> String.split(",", trim: true) |> Enum.map(&String.to_atom/1)
    {:ok, %{others: others, changes: 0}}
  end

  def handle_call({:track, topic, user}, _from, s) do
    :ets.insert(:presence_table, {topic, user})
    tell(s.others, [{topic, user}], [])
    {:reply, :ok, %{s | changes: s.changes + 1}}
  end

  def handle_cast({:untrack, topic, user}, s) do
    :ets.delete_object(:presence_table, {topic, user})
    tell(s.others, [], [{topic, user}])
    {:noreply, %{s | changes: s.changes + 1}}
  end

  defp tell(others, joins, leaves) do
    # only to those that are up
    for n <- others, Node.ping(n) == :pong, do: send({Presence.Inbox, n}, {:diff, node(), joins, leaves})
  end
end

defmodule Presence.Audit do
  @moduledoc "Sums up every second."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :sum, 1000)
    {:ok, %{}}
  end

  def handle_info(:sum, _) do
    Process.send_after(self(), :sum, 1000)
    {:noreply, :ets.foldl(fn {t, _}, m -> Map.update(m, t, 1, &(&1 + 1)) end, %{}, :presence_table)}
  end
end

defmodule Presence.Channel do
  @moduledoc "A user in a room: joins, chats, leaves, comes back."
  use GenServer, restart: :permanent

  def start_link(user), do: GenServer.start_link(__MODULE__, user)

  def init(user) do
    Process.send_after(self(), :join, :rand.uniform(8000))
    {:ok, %{user: user, topic: nil}}
  end

  def handle_info(:join, s) do
    topic = "room:#{:rand.uniform(60)}"

    try do
      :ok = Presence.Tracker.track(topic, s.user)
      :ets.update_counter(:presence_joins, :ok, 1, {:ok, 0})
      Process.send_after(self(), :leave, 4000 + :rand.uniform(8000))
      Process.send_after(self(), :chat, 300)
      {:noreply, %{s | topic: topic}}
    catch
      :exit, _ ->
        :ets.update_counter(:presence_joins, :failed, 1, {:failed, 0})
        Process.send_after(self(), :join, 1000 + :rand.uniform(4000))
        {:noreply, s}
    end
  end

  def handle_info(:chat, %{topic: nil} = s), do: {:noreply, s}

  def handle_info(:chat, s) do
    _ = Presence.Table.list(s.topic)
    Process.send_after(self(), :chat, 300)
    {:noreply, s}
  end

  def handle_info(:leave, s) do
    Presence.Tracker.untrack(s.topic, s.user)
    Process.send_after(self(), :join, 1000 + :rand.uniform(4000))
    {:noreply, %{s | topic: nil}}
  end

  # late answers of calls that had run out of time
  def handle_info(_, s), do: {:noreply, s}
end

defmodule Presence.Load do
  def start(n) do
    :ets.new(:presence_joins, [:named_table, :public])
    for i <- 1..n, do: {:ok, _} = DynamicSupervisor.start_child(Presence.Channels, {Presence.Channel, i})
    Process.sleep(:infinity)
  end
end
