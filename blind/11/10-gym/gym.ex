defmodule Gym.Application do
  use Application

  def start(_, _) do
    children = [
      Gym.Members,
      {Task.Supervisor, name: Gym.Jobs},
      Gym.Renewals,
      {Task.Supervisor, name: Gym.Connections},
      Gym.Listener
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Gym.Supervisor, max_restarts: 10)
  end
end

defmodule Gym.Members do
  @moduledoc "30000 members."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def get(id) do
    case :ets.lookup(__MODULE__, id) do
      [{_, m}] -> m
      [] -> nil
    end
  end

  def page(n), do: for(i <- 0..59, do: get("u#{Integer.mod(n * 60 + i, 30_000)}"))

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :protected, read_concurrency: true])

    for i <- 0..29_999 do
      :ets.insert(__MODULE__, {"u#{i}", %{id: "u#{i}", name: "Member #{i}", until: rem(i, 365), visits: for(v <- 1..12, do: {v, rem(i * v, 90)}), plan: rem(i, 4)}})
    end

    {:ok, nil}
  end
end

defmodule Gym.Renewals do
  @moduledoc "Goes through the members page by page and has the cards of each page renewed in a task."
  use GenServer
  require Logger

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :next, 500)
    {:ok, %{page: 0, running: %{}, done: 0}}
  end

  def handle_info(:next, s) do
    Process.send_after(self(), :next, 60)
    members = Gym.Members.page(s.page)
    task = Task.Supervisor.async_nolink(Gym.Jobs, Gym.Cards, :renew, [Enum.map(members, & &1.id)])
    {:noreply, %{s | page: s.page + 1, running: Map.put(s.running, task.ref, {members, System.monotonic_time()})}}
  end

  def handle_info({ref, {:renewed, n}}, s) do
    Process.demonitor(ref, [:flush])
    {_, running} = Map.pop(s.running, ref)
    {:noreply, %{s | running: running, done: s.done + n}}
  end

  def handle_info({:DOWN, ref, :process, _, _reason}, s) do
    {members, _} = Map.get(s.running, ref)
    Logger.debug("cards of #{length(members)} members not renewed")
    {:noreply, s}
  end
end

defmodule Gym.Cards do
  @moduledoc "The card printer takes only pages of one kind of plan at the moment."
  def renew(ids) do
    Process.sleep(5)
    if rem(:erlang.phash2(ids), 10) < 2, do: {:renewed, length(ids)}, else: exit(:shutdown)
  end
end

defmodule Gym.Listener do
  @moduledoc "TCP front"
  use Task, restart: :permanent

  def start_link(_), do: Task.start_link(__MODULE__, :listen, [])

  def listen do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, reuseaddr: true, backlog: 256, ip: {127, 0, 0, 1}, nodelay: true, buffer: 65_536])
    {:ok, port} = :inet.port(l)
    file = System.fetch_env!("PORT_FILE")
    File.write!(file <> ".new", "#{port}")
    File.rename!(file <> ".new", file)
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Gym.Connections, fn -> receive do: (:go -> Gym.Connection.serve(s)) end)
    case :gen_tcp.controlling_process(s, pid) do
      :ok -> send(pid, :go)
      _ -> Process.exit(pid, :kill)
    end
    accept(l)
  end
end

defmodule Gym.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [Gym.Api.answer(String.split(line)), ?\n])
        serve(s)
      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Gym.Api do
  def answer(["enter", id]), do: "open #{Gym.Members.get(id).until}"
  def answer(["card", id]), do: "plan #{Gym.Members.get(id).plan}"
end
