defmodule Timetable.Application do
  use Application

  def start(_type, _args) do
    children = [
      Timetable.Schedule,
      Timetable.Alerts,
      Timetable.Vehicles,
      Timetable.Refresh,
      {Task.Supervisor, name: Timetable.Requests},
      {Task, fn -> Timetable.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Timetable.Supervisor)
  end
end

defmodule Timetable.Schedule do
  @moduledoc "The timetable of the day, as it came from the feed: route => trips with their stops."
  use Agent

  @routes 150
  @trips 60
  @stops 14

  def start_link(_), do: Agent.start_link(&load/0, name: __MODULE__)

  def all, do: Agent.get(__MODULE__, fn schedule -> schedule end, 30_000)

  def delay(route, minutes) do
    Agent.update(__MODULE__, fn schedule ->
      Map.update!(schedule, route, fn trips -> Enum.map(trips, &%{&1 | delay: minutes}) end)
    end, 30_000)
  end

  def routes, do: @routes

  defp load do
    for r <- 1..@routes, into: %{} do
      trips =
        for t <- 1..@trips do
          from = 270 + t * 18 + rem(r, 17)
          first = :erlang.phash2({r, t}, 900)

          %{
            id: "#{r}-#{t}",
            route: "Line #{r}",
            headsign: "Terminal #{rem(r * 7 + t, 40)}",
            delay: 0,
            stops: for(s <- 0..(@stops - 1), do: {rem(first + s * 13, 900), from + s * 3, from + s * 3 + 1})
          }
        end

      {r, trips}
    end
  end
end

defmodule Timetable.Departures do
  @moduledoc "What leaves next at a stop"

  def next(stop, minute) do
    Timetable.Schedule.all()
    |> Enum.flat_map(fn {_route, trips} ->
      for trip <- trips, {^stop, _arr, dep} <- trip.stops, dep + trip.delay >= minute do
        {dep + trip.delay, trip.route, trip.headsign}
      end
    end)
    |> Enum.sort()
    |> Enum.take(8)
  end

  def trip(id) do
    [r, _] = String.split(id, "-")
    Timetable.Schedule.all() |> Map.fetch!(String.to_integer(r)) |> Enum.find(&(&1.id == id))
  end
end

defmodule Timetable.Alerts do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def list, do: GenServer.call(__MODULE__, :list)
  def init(_), do: {:ok, ["Line 12: diversion at Market", "Line 77: no lift at Station"]}
  def handle_call(:list, _, alerts), do: {:reply, alerts, alerts}
end

defmodule Timetable.Vehicles do
  @moduledoc "Where the buses are (from their radios)"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:timetable_vehicles, [:named_table, :public, read_concurrency: true])
    Process.send_after(self(), :radio, 500)
    {:ok, 0}
  end

  def where(bus), do: :ets.lookup(:timetable_vehicles, bus)

  def handle_info(:radio, n) do
    for b <- 1..300, do: :ets.insert(:timetable_vehicles, {b, rem(n + b * 13, 900), 40 + rem(n * b, 30)})
    Process.send_after(self(), :radio, 1000)
    {:noreply, n + 1}
  end
end

defmodule Timetable.Refresh do
  @moduledoc "Delays of the lines, every ten seconds a few of them"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :refresh, 10_000)
    {:ok, 1}
  end

  def handle_info(:refresh, n) do
    for i <- 1..4, do: Timetable.Schedule.delay(rem(n * 4 + i, Timetable.Schedule.routes()) + 1, rem(n + i, 6))
    Process.send_after(self(), :refresh, 10_000)
    {:noreply, n + 1}
  end
end

defmodule Timetable.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 128])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Timetable.Requests, fn -> serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end

  defp serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        answer = line |> String.trim() |> String.split(" ") |> answer()
        :ok = :gen_tcp.send(s, [answer, "\n"])
        serve(s)

      {:error, _} ->
        :gen_tcp.close(s)
    end
  end

  # a request is worked at in a task of its own, so that its garbage goes with it
  defp answer(["next", stop, minute]) do
    Task.async(fn -> Timetable.Departures.next(String.to_integer(stop), String.to_integer(minute)) end)
    |> Task.await(30_000)
    |> Enum.map_join(";", fn {t, r, h} -> "#{t} #{r} #{h}" end)
  end

  defp answer(["trip", id]) do
    Task.async(fn -> Timetable.Departures.trip(id).headsign end) |> Task.await(30_000)
  end

  defp answer(["where", bus]), do: inspect(Timetable.Vehicles.where(String.to_integer(bus)))
  defp answer(["alerts"]), do: Enum.join(Timetable.Alerts.list(), ";")
end
