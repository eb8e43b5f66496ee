defmodule Chargers.Application do
  use Application

  def start(_type, _args) do
    children = [
      Chargers.Tariff,
      {Registry, keys: :unique, name: Chargers.Plugs, partitions: 2},
      {DynamicSupervisor, name: Chargers.Sessions, max_children: 100_000},
      {Task.Supervisor, name: Chargers.Connections},
      {Task, fn -> Chargers.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Chargers.Supervisor)
  end
end

defmodule Chargers.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 256])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Chargers.Connections, fn -> Chargers.Connection.serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end
end

defmodule Chargers.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :gen_tcp.send(s, [answer(String.split(String.trim(line), " ")), "\n"])
        serve(s)

      {:error, _} ->
        :ok
    end
  end

  defp answer(["plug", id]) do
    case DynamicSupervisor.start_child(Chargers.Sessions, {Chargers.Session, id}) do
      {:ok, _} -> "on"
      {:error, {:already_started, _}} -> "already"
    end
  end

  defp answer(["unplug", id]), do: with_session(id, &Chargers.Session.stop/1)
  defp answer(["meter", id, kwh]), do: with_session(id, &Chargers.Session.meter(&1, String.to_integer(kwh)))
  defp answer(["overview"]), do: Chargers.Overview.line()

  defp with_session(id, fun) do
    case Registry.lookup(Chargers.Plugs, id) do
      [{pid, _}] -> Integer.to_string(fun.(pid))
      [] -> "unknown"
    end
  end
end

defmodule Chargers.Session do
  use GenServer, restart: :temporary

  def start_link(id), do: GenServer.start_link(__MODULE__, id, name: {:via, Registry, {Chargers.Plugs, id}}, hibernate_after: 3000)
  def meter(pid, kwh), do: GenServer.call(pid, {:meter, kwh})
  def stop(pid), do: GenServer.call(pid, :stop)

  def init(id), do: {:ok, %{id: id, kwh: 0, price: Chargers.Tariff.now()}}
  def handle_call({:meter, kwh}, _, s), do: {:reply, kwh * s.price, %{s | kwh: kwh}}
  def handle_call(:stop, _, s), do: {:stop, :normal, s.kwh * s.price, s}
end

defmodule Chargers.Tariff do
  use Agent
  def start_link(_), do: Agent.start_link(fn -> :persistent_term.put(__MODULE__, 39) end, name: __MODULE__)
  def now, do: :persistent_term.get(__MODULE__)
end

defmodule Chargers.Overview do
  @moduledoc "The line at the top of each operator's page."

  def line do
    active =
      Chargers.Sessions
      |> DynamicSupervisor.which_children()
      |> Enum.count(fn {_, pid, _, _} -> is_pid(pid) end)

    "charging #{active} tariff #{Chargers.Tariff.now()}"
  end
end
