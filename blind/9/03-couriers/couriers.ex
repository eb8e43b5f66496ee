defmodule Couriers.Application do
  use Application

  def start(_type, _args) do
    children = [
      {Registry, keys: :unique, name: Couriers.Names},
      Couriers.Replica,
      Couriers.Cluster,
      Couriers.Zones,
      {DynamicSupervisor, name: Couriers.Fleet, strategy: :one_for_one},
      {Task.Supervisor, name: Couriers.Connections},
      {Task, fn -> Couriers.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Couriers.Supervisor)
  end
end

defmodule Couriers.Cluster do
  @moduledoc "The other nodes of the service: whoever is registered at the epmd under our name."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:couriers_cluster, [:named_table, :public, read_concurrency: true])
    :ets.insert(:couriers_cluster, [{:peers, []}, {:replicated, 0}, {:not_replicated, 0}])
    send(self(), :discover)
    {:ok, nil}
  end

  def peers, do: :ets.lookup_element(:couriers_cluster, :peers, 2)
  def count(key), do: :ets.update_counter(:couriers_cluster, key, 1)

  def handle_info(:discover, s) do
    [_, host] = node() |> Atom.to_string() |> String.split("@")

    with {:ok, names} <- :erl_epmd.names(String.to_charlist(host)) do
      peers = for {name, _port} <- names, List.starts_with?(name, ~c"couriers"), n = :"#{name}@#{host}", n != node(), do: n
      :ets.insert(:couriers_cluster, {:peers, Enum.sort(peers)})
    end

    Process.send_after(self(), :discover, 3000)
    {:noreply, s}
  end
end

defmodule Couriers.Replica do
  @moduledoc "Copies of the positions that other nodes hold"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:couriers_replica, [:named_table, :public])
    {:ok, nil}
  end

  def put_everywhere(rec) do
    for n <- Couriers.Cluster.peers() do
      try do
        :ok = GenServer.call({__MODULE__, n}, {:put, rec}, 3000)
        Couriers.Cluster.count(:replicated)
      catch
        :exit, _ -> Couriers.Cluster.count(:not_replicated)
      end
    end
  end

  def handle_call({:put, rec}, _, s) do
    :ets.insert(:couriers_replica, rec)
    {:reply, :ok, s}
  end
end

defmodule Couriers.Zones do
  @moduledoc "Which part of the city a position is in"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:couriers_zones, [:named_table, :protected, read_concurrency: true])
    for x <- 0..19, y <- 0..19, do: :ets.insert(:couriers_zones, {{x, y}, "zone #{x * 20 + y}"})
    {:ok, nil}
  end

  def of(x, y), do: :ets.lookup_element(:couriers_zones, {rem(div(x, 50), 20), rem(div(y, 50), 20)}, 2)
end

defmodule Couriers.Courier do
  use GenServer

  def start_link(id), do: GenServer.start_link(__MODULE__, id, name: via(id))
  def via(id), do: {:via, Registry, {Couriers.Names, id}}

  def ensure(id) do
    case DynamicSupervisor.start_child(Couriers.Fleet, {__MODULE__, id}) do
      {:ok, _} -> :ok
      {:error, {:already_started, _}} -> :ok
    end
  end

  def init(id), do: {:ok, %{id: id, track: []}}

  def handle_call({:position, x, y}, _, s) do
    rec = {s.id, x, y, Couriers.Zones.of(x, y), System.system_time(:millisecond)}
    Couriers.Replica.put_everywhere(rec)
    {:reply, elem(rec, 3), %{s | track: Enum.take([{x, y} | s.track], 20)}}
  end

  def handle_call(:track, _, s), do: {:reply, s.track, s}
end

defmodule Couriers.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 256])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Couriers.Connections, fn -> serve(s) end)
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

  defp answer(["hello", id]) do
    Couriers.Courier.ensure(id)
    "ok"
  end

  defp answer(["pos", id, x, y]) do
    GenServer.call(Couriers.Courier.via(id), {:position, String.to_integer(x), String.to_integer(y)}, 20_000)
  end

  defp answer(["track", id]), do: "#{length(GenServer.call(Couriers.Courier.via(id), :track, 20_000))}"
  defp answer(["zone", x, y]), do: Couriers.Zones.of(String.to_integer(x), String.to_integer(y))
end
