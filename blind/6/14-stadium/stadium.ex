defmodule Stadium.Application do
  use Application

  def start(_type, _args) do
    children = [
      Stadium.Scores,
      {Registry, keys: :duplicate, name: Stadium.Audience},
      {DynamicSupervisor, name: Stadium.Fans, max_children: 120_000},
      {Task.Supervisor, name: Stadium.Edges},
      Stadium.Reporter,
      {Task, fn -> Stadium.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Stadium.Supervisor)
  end
end

defmodule Stadium.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, recbuf: 65536])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Stadium.Edges, fn -> Stadium.Edge.serve(s, %{}) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end
end

defmodule Stadium.Edge do
  @moduledoc "One edge server; many viewers come through its connection."
  def serve(s, fans) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} -> serve(s, handle(String.split(String.trim(line), " "), fans, s))
      {:error, _} -> :ok
    end
  end

  defp handle(["join", id, match], fans, _) do
    {:ok, pid} = DynamicSupervisor.start_child(Stadium.Fans, {Stadium.Fan, match})
    Map.put(fans, id, pid)
  end

  defp handle(["leave", id], fans, _) do
    {pid, fans} = Map.pop(fans, id)
    if pid, do: Stadium.Fan.leave(pid)
    fans
  end

  defp handle(["score", match], fans, s) do
    :gen_tcp.send(s, [Stadium.Scores.of(match), "\n"])
    fans
  end
end

defmodule Stadium.Fan do
  use GenServer, restart: :temporary
  def start_link(match), do: GenServer.start_link(__MODULE__, match)
  def leave(pid), do: GenServer.cast(pid, :leave)

  def init(match) do
    {:ok, _} = Registry.register(Stadium.Audience, match, [])
    {:ok, %{match: match, last: nil}, :hibernate}
  end

  def handle_cast(:leave, s), do: {:stop, :normal, s}
  def handle_info({:goal, n}, s), do: {:noreply, %{s | last: n}, :hibernate}
end

defmodule Stadium.Reporter do
  @moduledoc "Something happens in one of the matches."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :timer.send_interval(5000, :goal)
    {:ok, 0}
  end

  def handle_info(:goal, n) do
    match = if rem(n, 4) == 0, do: "final", else: "m#{rem(n, 200)}"
    Stadium.Scores.add(match)
    Registry.dispatch(Stadium.Audience, match, fn es -> for {pid, _} <- es, do: send(pid, {:goal, n}) end)
    {:noreply, n + 1}
  end
end

defmodule Stadium.Scores do
  use Agent
  def start_link(_), do: Agent.start_link(fn -> :ets.new(:stadium_scores, [:named_table, :public]) end, name: __MODULE__)
  def add(m), do: :ets.update_counter(:stadium_scores, m, 1, {m, 0})

  def of(m) do
    case :ets.lookup(:stadium_scores, m) do
      [{_, n}] -> Integer.to_string(n)
      [] -> "0"
    end
  end
end
