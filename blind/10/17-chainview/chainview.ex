defmodule Chainview.Application do
  use Application

  def start(_, _) do
    children =
      [Chainview.Tokens] ++
        for(i <- 0..7, do: Supervisor.child_spec({Chainview.Cache, i}, id: {:cache, i})) ++
        [Chainview.Memory, {Task.Supervisor, name: Chainview.Connections}, Chainview.Listener]

    Supervisor.start_link(children, strategy: :one_for_one, name: Chainview.Supervisor)
  end
end

defmodule Chainview.Tokens do
  @moduledoc "All tokens of the chain."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def find(i), do: :ets.lookup(__MODULE__, i)

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :protected, read_concurrency: true])
    for i <- 0..149_999, do: :ets.insert(__MODULE__, {i, "Token #{i}", "T#{i}", 18, i * 1000, {:holders, rem(i * 7919, 5000)}})
    {:ok, nil}
  end
end

defmodule Chainview.Cache do
  @moduledoc "A shard of the transactions that were looked up lately."
  use GenServer

  @most 2000

  def start_link(i), do: GenServer.start_link(__MODULE__, i, name: name(i))
  def name(i), do: :"chainview_cache_#{i}"
  def tx(i), do: GenServer.call(name(rem(i, 8)), {:tx, i}, 30_000)
  def shrink(i), do: GenServer.cast(name(i), :shrink)

  def init(_) do
    port = System.fetch_env!("CHAIN_FILE") |> File.read!() |> String.to_integer()
    {:ok, s} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, packet: 4, active: false, nodelay: true])
    {:ok, %{socket: s, entries: %{}, hits: 0, misses: 0}}
  end

  def handle_call({:tx, i}, _, s) do
    case s.entries do
      %{^i => tx} ->
        {:reply, tx, %{s | hits: s.hits + 1}}

      _ ->
        tx = fetch(s.socket, i)
        entries = if map_size(s.entries) >= @most, do: %{}, else: s.entries
        {:reply, tx, %{s | entries: Map.put(entries, i, tx), misses: s.misses + 1}}
    end
  end

  def handle_cast(:shrink, s) do
    s = %{s | entries: %{}}
    :erlang.garbage_collect()
    {:noreply, s}
  end

  defp fetch(socket, i) do
    :ok = :gen_tcp.send(socket, "tx #{i}")
    {:ok, <<"tx ", rest::binary>>} = :gen_tcp.recv(socket, 0)
    [_, data] = String.split(rest, " ", parts: 2)
    %{number: i, data: data}
  end
end

defmodule Chainview.Memory do
  @moduledoc "Keeps the memory below the limit: asks the caches to shrink when it is exceeded."
  use GenServer
  require Logger

  @limit 48 * 1024 * 1024

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :check, 300)
    {:ok, %{ticks: 0, exceeded: 0}}
  end

  def handle_info(:check, s) do
    Process.send_after(self(), :check, 300)
    total = :erlang.memory(:total)

    if total > @limit do
      if rem(s.exceeded, 200) == 0, do: Logger.warning("#{total} / #{@limit} bytes of memory limit used, asking caches to shrink")
      for i <- 0..7, do: Chainview.Cache.shrink(i)
      {:noreply, %{s | ticks: s.ticks + 1, exceeded: s.exceeded + 1}}
    else
      {:noreply, %{s | ticks: s.ticks + 1}}
    end
  end
end

defmodule Chainview.Listener do
  @moduledoc "TCP front of the explorer"
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
    {:ok, pid} = Task.Supervisor.start_child(Chainview.Connections, fn -> receive do: (:go -> Chainview.Connection.serve(s)) end)
    case :gen_tcp.controlling_process(s, pid) do
      :ok -> send(pid, :go)
      _ -> Process.exit(pid, :kill)
    end
    accept(l)
  end
end

defmodule Chainview.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [Chainview.Api.answer(String.split(line)), ?\n])
        serve(s)
      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Chainview.Api do
  def answer(["tx", i]), do: ["tx ", String.slice(Chainview.Cache.tx(String.to_integer(i)).data, 0, 60)]

  def answer(["token", i]) do
    [{_, name, symbol, _, supply, _}] = Chainview.Tokens.find(String.to_integer(i))
    "token #{name} #{symbol} #{supply}"
  end
end
