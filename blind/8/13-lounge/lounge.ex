defmodule Lounge.Api do
  @moduledoc "Gaming lounge: who sits in which room."
  def handle(["enter", room, user]) do
    Lounge.Tracker.track(room, user, %{since: System.os_time(:second)})
    "ok"
  end

  def handle(["leave", room, user]) do
    Lounge.Tracker.untrack(room, user)
    "ok"
  end

  def handle(["who", room]) do
    Lounge.Tracker.list(room) |> Enum.take(10) |> Enum.map(fn {_, u, _} -> [u, ?\s] end)
  end

  def handle(_), do: "?"
end

defmodule Lounge.Tracker do
  @moduledoc """
  Presence of the players of all nodes. Each node is a replica with a clock; a heartbeat each 1.5 s carries the
  clocks. A replica whose clocks are behind ours gets the latest delta, or, if no delta reaches back far enough,
  all of our state. A replica that has gone stays in the clocks (as down) for 20 minutes, since it may come back.
  """
  use GenServer
  @heartbeat 1500
  @permdown 20 * 60_000
  @generations 4

  def start_link(opts), do: GenServer.start_link(__MODULE__, opts, name: __MODULE__)
  def track(room, user, meta), do: GenServer.cast(__MODULE__, {:track, room, user, meta})
  def untrack(room, user), do: GenServer.cast(__MODULE__, {:untrack, room, user})
  def list(room), do: :ets.lookup(:lounge_rooms, room)

  def init(opts) do
    :ets.new(:lounge_rooms, [:bag, :named_table, :protected, read_concurrency: true])
    me = {node(), :erlang.unique_integer([:positive])}
    s = %{me: me, values: %{}, clocks: %{me => 1}, deltas: [], delta: %{}, down: %{}, transfers: 0}
    # the players that sit here already
    s = Enum.reduce(1..Keyword.get(opts, :players, 0)//1, s, fn i, s -> put(s, "room#{rem(i, 2500)}", "#{node()}-#{i}", %{since: i, device: "phone", tags: [:a, :b, i]}) end)
    s = %{s | delta: %{}}
    # the third node was replaced an hour ago by a deployment; its replica is known as down
    gone = {:"lounge3@127.0.0.1", 77}
    s = %{s | clocks: Map.put(s.clocks, gone, Keyword.get(opts, :gone_clock, 0)), down: %{gone => System.monotonic_time(:millisecond)}}
    Process.send_after(self(), :heartbeat, @heartbeat)
    {:ok, s}
  end

  def handle_cast({:track, room, user, meta}, s), do: {:noreply, put(s, room, user, meta)}
  def handle_cast({:untrack, room, user}, s), do: {:noreply, drop(s, room, user)}

  def handle_info(:heartbeat, s) do
    Process.send_after(self(), :heartbeat, @heartbeat)
    s = %{s | deltas: Enum.take([{s.clocks, s.delta} | s.deltas], @generations), delta: %{}}
    now = System.monotonic_time(:millisecond)
    {dead, down} = Enum.split_with(s.down, fn {_, at} -> now - at > @permdown end)
    s = %{s | down: Map.new(down), clocks: Map.drop(s.clocks, Keyword.keys(dead) |> List.wrap())}
    for n <- Node.list(), do: send({__MODULE__, n}, {:clocks, self(), s.me, s.clocks})
    {:noreply, s}
  end

  # the other replica tells its clocks: does it lack anything of ours?
  def handle_info({:clocks, from, _replica, theirs}, s) do
    if not dominates?(theirs, s.clocks) do
      case Enum.find(s.deltas, fn {clocks, _} -> dominates?(theirs, clocks) end) do
        {_, delta} -> send(from, {:merge, s.me, Map.take(s.clocks, [s.me]), delta})
        nil -> send(from, {:merge, s.me, Map.take(s.clocks, [s.me]), own(s)})
      end
    end
    {:noreply, s}
  end

  def handle_info({:merge, replica, clocks, values}, s) do
    values = Enum.reduce(values, s.values, fn
      {{room, user} = k, :gone}, acc ->
        :ets.match_delete(:lounge_rooms, {room, user, :_})
        Map.delete(acc, k)
      {{room, user} = k, meta}, acc ->
        if Map.get(acc, k) != {replica, meta}, do: :ets.insert(:lounge_rooms, {room, user, meta})
        Map.put(acc, k, {replica, meta})
    end)
    {:noreply, %{s | values: values, clocks: Map.merge(s.clocks, clocks, fn _, a, b -> max(a, b) end), transfers: s.transfers + 1}}
  end

  defp put(s, room, user, meta) do
    :ets.insert(:lounge_rooms, {room, user, meta})
    tick(%{s | values: Map.put(s.values, {room, user}, {s.me, meta}), delta: Map.put(s.delta, {room, user}, meta)})
  end

  defp drop(s, room, user) do
    :ets.match_delete(:lounge_rooms, {room, user, :_})
    tick(%{s | values: Map.delete(s.values, {room, user}), delta: Map.put(s.delta, {room, user}, :gone)})
  end

  defp tick(s), do: %{s | clocks: Map.update!(s.clocks, s.me, &(&1 + 1))}
  defp own(s), do: for({k, {r, meta}} <- s.values, r == s.me, into: %{}, do: {k, meta})
  defp dominates?(a, b), do: Enum.all?(b, fn {r, c} -> Map.get(a, r, 0) >= c end)
end
