defmodule Tanks.Application do
  use Application

  def start(_type, _args) do
    children = [
      Tanks.Game,
      Tanks.ArenaView,
      Tanks.Scores,
      {Task.Supervisor, name: Tanks.Players},
      {Task, fn -> Tanks.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Tanks.Supervisor)
  end
end

defmodule Tanks.Thing do
  defstruct [:id, :kind, :x, :y, :heading, :speed]
end

defmodule Tanks.Game do
  @moduledoc "Moves everything, 30 times a second"
  use GenServer
  alias Tanks.Thing
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:tanks_world, [:named_table, :protected, read_concurrency: true])

    things =
      for i <- 1..220 do
        kind = Enum.at([:tank, :missile, :wall, :powerup], rem(i, 4))
        %Thing{id: i, kind: kind, x: :rand.uniform() * 400, y: :rand.uniform() * 400, heading: :rand.uniform() * 6.28, speed: if(kind == :wall, do: 0.0, else: 2.0)}
      end

    :timer.send_interval(33, :tick)
    {:ok, things}
  end

  def handle_info(:tick, things) do
    things = Enum.map(things, &move/1)
    :ets.insert(:tanks_world, {:things, things})
    {:noreply, things}
  end

  def handle_cast({:steer, id, heading}, things) do
    {:noreply, Enum.map(things, fn t -> if t.id == id, do: %{t | heading: heading}, else: t end)}
  end

  def steer(id, heading), do: GenServer.cast(__MODULE__, {:steer, id, heading})
  def world, do: :ets.lookup_element(:tanks_world, :things, 2)

  defp move(%Thing{speed: s} = t) when s == 0.0, do: t

  defp move(t) do
    x = t.x + t.speed * :math.cos(t.heading)
    y = t.y + t.speed * :math.sin(t.heading)
    if x < 0 or x > 400 or y < 0 or y > 400, do: %{t | heading: t.heading + 2.0}, else: %{t | x: x, y: y}
  end
end

defmodule Tanks.ArenaView do
  @moduledoc "What a player sees of the arena: everything turned and moved to his tank, with distances, as JSON."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def view(player), do: GenServer.call(__MODULE__, {:view, player}, 30_000)

  def init(_), do: {:ok, %{views: 0}}

  def handle_call({:view, player}, _, s) do
    things = Tanks.Game.world()
    me = Enum.at(things, rem(player, length(things)))
    {:reply, render(things, me), %{s | views: s.views + 1}}
  end

  defp render(things, me) do
    cells =
      things
      |> Enum.map(fn t -> seen(t, me) end)
      |> Enum.sort_by(& &1.distance)
      |> Enum.map_join(",", &encode/1)

    "{\"player\":#{me.id},\"things\":[" <> cells <> "]}"
  end

  defp seen(t, me) do
    dx = t.x - me.x
    dy = t.y - me.y
    c = :math.cos(-me.heading)
    s = :math.sin(-me.heading)
    %{id: t.id, kind: t.kind, x: dx * c - dy * s, y: dx * s + dy * c, heading: t.heading - me.heading, distance: :math.sqrt(dx * dx + dy * dy)}
  end

  defp encode(o) do
    "{" <> Enum.map_join(Map.to_list(o), ",", fn {k, v} -> "\"#{k}\":#{value(v)}" end) <> "}"
  end

  defp value(v) when is_float(v), do: :erlang.float_to_binary(v, decimals: 2)
  defp value(v) when is_atom(v), do: "\"#{v}\""
  defp value(v), do: to_string(v)
end

defmodule Tanks.Scores do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def hit(p), do: GenServer.cast(__MODULE__, {:hit, p})
  def of(p), do: GenServer.call(__MODULE__, {:of, p})
  def init(_), do: {:ok, %{}}
  def handle_cast({:hit, p}, s), do: {:noreply, Map.update(s, p, 1, &(&1 + 1))}
  def handle_call({:of, p}, _, s), do: {:reply, Map.get(s, p, 0), s}
end

defmodule Tanks.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 128, nodelay: true])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Tanks.Players, fn -> serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end

  defp serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [answer(String.split(String.trim(line), " ")), "\n"])
        serve(s)

      {:error, _} ->
        :gen_tcp.close(s)
    end
  end

  defp answer(["view", p]), do: Tanks.ArenaView.view(String.to_integer(p))

  defp answer(["steer", p, h]) do
    Tanks.Game.steer(String.to_integer(p), String.to_integer(h) / 100)
    "ok"
  end

  defp answer(["score", p]) do
    Tanks.Scores.hit(p)
    "#{Tanks.Scores.of(p)}"
  end
end
