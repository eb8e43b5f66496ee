defmodule Hotspots.Application do
  use Application

  def start(_, _) do
    children = [
      Hotspots.Devices,
      Hotspots.Leases,
      Hotspots.Load,
      {Task.Supervisor, name: Hotspots.Antennas},
      {Task, fn -> Hotspots.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Hotspots.Supervisor)
  end
end

defmodule Hotspots.Devices do
  @moduledoc """
  All devices by their id (the address the phone shows). The neighbouring cities have copies, so a row carries
  the clock of its last change, and what has left is marked as such so that an old copy does not bring it back.
  """
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :public, :set, write_concurrency: true, read_concurrency: true])
    {:ok, nil}
  end

  def enter(id, antenna) do
    clock =
      case :ets.lookup(__MODULE__, id) do
        [{_, _, clock}] -> tick(clock)
        [] -> tick([])
      end

    :ets.insert(__MODULE__, {id, {:present, antenna, System.system_time(:second)}, clock})
  end

  def leave(id) do
    case :ets.lookup(__MODULE__, id) do
      [{_, {:present, _, _}, clock}] -> :ets.insert(__MODULE__, {id, :left, tick(clock)})
      _ -> :ok
    end
  end

  def present?(id), do: match?([{_, {:present, _, _}, _}], :ets.lookup(__MODULE__, id))

  defp tick(clock), do: List.keystore(clock, :here, 0, {:here, :erlang.unique_integer([:monotonic]), System.system_time(:second)})
end

defmodule Hotspots.Leases do
  @moduledoc "Addresses lent to devices, with an end; a sweep each second takes back what is over."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def lend(id), do: :ets.insert(__MODULE__, {id, System.monotonic_time(:second) + 20})
  def back(id), do: :ets.delete(__MODULE__, id)

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :public, :set, write_concurrency: true])
    :timer.send_interval(1000, :sweep)
    {:ok, 0}
  end

  def handle_info(:sweep, n) do
    now = System.monotonic_time(:second)
    {:noreply, n + :ets.select_delete(__MODULE__, [{{:_, :"$1"}, [{:<, :"$1", now}], [true]}])}
  end
end

defmodule Hotspots.Load do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def entered(a), do: :ets.update_counter(__MODULE__, {a, :in}, 1, {{a, :in}, 0})
  def left(a), do: :ets.update_counter(__MODULE__, {a, :out}, 1, {{a, :out}, 0})

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :public, write_concurrency: true])
    {:ok, nil}
  end
end

defmodule Hotspots.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, recbuf: 65536])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Hotspots.Antennas, fn -> antenna(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end

  defp antenna(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        case line |> String.trim() |> String.split(" ") do
          ["+", a, id] ->
            id = :binary.copy(id)
            Hotspots.Devices.enter(id, String.to_integer(a))
            Hotspots.Leases.lend(id)
            Hotspots.Load.entered(a)

          ["-", a, id] ->
            id = :binary.copy(id)
            Hotspots.Devices.leave(id)
            Hotspots.Leases.back(id)
            Hotspots.Load.left(a)
        end

        antenna(s)

      {:error, _} ->
        :ok
    end
  end
end
