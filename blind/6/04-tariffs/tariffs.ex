defmodule Tariffs.Application do
  use Application

  def start(_type, _args) do
    children = [
      Tariffs.Table,
      {DynamicSupervisor, name: Tariffs.ZoneSupervisor},
      Tariffs.Coordinator,
      Tariffs.Feed,
      {Task.Supervisor, name: Tariffs.Connections},
      {Task, fn -> Tariffs.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Tariffs.Supervisor)
  end
end

defmodule Tariffs.Table do
  @moduledoc "zone => {version, cents}; {from, to} => cents"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:tariffs_zones, [:named_table, :public, :set, read_concurrency: true])
    :ets.new(:tariffs_fares, [:named_table, :public, :set, read_concurrency: true])
    for z <- zones(), do: :ets.insert(:tariffs_zones, {z, 1, 100 + z})
    for a <- zones(), b <- zones(), do: :ets.insert(:tariffs_fares, {{a, b}, 200 + 30 * abs(a - b)})
    {:ok, nil}
  end

  def zones, do: 1..14
  def version(z), do: :ets.lookup_element(:tariffs_zones, z, 2)
  def fare(a, b), do: :ets.lookup_element(:tariffs_fares, {a, b}, 2)
end

defmodule Tariffs.Feed do
  @moduledoc "The association changes a zone's surcharge now and then."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :timer.send_interval(4000, :change)
    {:ok, 0}
  end

  def handle_info(:change, n) do
    z = :rand.uniform(14)
    [{_, v, _}] = :ets.lookup(:tariffs_zones, z)
    :ets.insert(:tariffs_zones, {z, v + 1, 100 + :rand.uniform(50)})
    {:noreply, n + 1}
  end
end

defmodule Tariffs.Coordinator do
  @moduledoc "Has a watcher for each zone. When a zone has changed, everything is set up anew."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def changed(zone), do: GenServer.cast(__MODULE__, {:changed, zone})

  def init(_) do
    {:ok, set_up(%{watchers: %{}, round: 0, pending: false})}
  end

  def handle_cast({:changed, zone}, s) do
    compute(zone)
    unless s.pending, do: Process.send_after(self(), :set_up, 400)
    {:noreply, %{s | pending: true}}
  end

  def handle_info(:set_up, s), do: {:noreply, set_up(%{s | pending: false})}

  defp set_up(s) do
    watchers =
      Map.new(Tariffs.Table.zones(), fn z ->
        {:ok, pid} = DynamicSupervisor.start_child(Tariffs.ZoneSupervisor, {Tariffs.ZoneWatcher, {z, Tariffs.Table.version(z)}})
        {z, pid}
      end)

    %{s | watchers: watchers, round: s.round + 1}
  end

  defp compute(zone) do
    [{_, _, cents}] = :ets.lookup(:tariffs_zones, zone)
    for b <- Tariffs.Table.zones(), do: :ets.insert(:tariffs_fares, {{zone, b}, cents + 200 + 30 * abs(zone - b)})
  end
end

defmodule Tariffs.ZoneWatcher do
  @moduledoc "Looks at its zone each second; tells the coordinator when it is not the version that it knows."
  use GenServer, restart: :temporary
  def start_link(arg), do: GenServer.start_link(__MODULE__, arg)

  def init({zone, version}) do
    Process.send_after(self(), :look, 500 + :rand.uniform(500))
    {:ok, {zone, version}}
  end

  def handle_info(:look, {zone, version}) do
    if Tariffs.Table.version(zone) != version, do: Tariffs.Coordinator.changed(zone)
    Process.send_after(self(), :look, 1000)
    {:noreply, {zone, version}}
  end
end

defmodule Tariffs.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Tariffs.Connections, fn -> serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end

  defp serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        [a, b] = String.split(String.trim(line), " ")
        :gen_tcp.send(s, "#{Tariffs.Table.fare(String.to_integer(a), String.to_integer(b))}\n")
        serve(s)

      {:error, _} ->
        :ok
    end
  end
end
