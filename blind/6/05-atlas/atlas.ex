defmodule Atlas.Application do
  use Application

  def start(_type, _args) do
    children = [
      Atlas.Tiles,
      Atlas.Places,
      {Task.Supervisor, name: Atlas.Connections},
      {Task, fn -> Atlas.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Atlas.Supervisor)
  end
end

defmodule Atlas.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 256])
    {:ok, port} = :inet.port(l)
    Atlas.Tiles.ready()
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Atlas.Connections, fn -> Atlas.Connection.serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end
end

defmodule Atlas.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :gen_tcp.send(s, answer(String.split(String.trim(line), " ")))
        serve(s)

      {:error, _} ->
        :ok
    end
  end

  defp answer(["tile", n]) do
    tile = Atlas.Tiles.get(String.to_integer(n))
    [<<byte_size(tile)::32>>, tile]
  end

  defp answer(["near", x, y]) do
    text = Atlas.Places.near(String.to_integer(x), String.to_integer(y))
    [<<byte_size(text)::32>>, text]
  end
end

defmodule Atlas.Tiles do
  @moduledoc "The drawn tiles: at most @most of them; the ones that were drawn first go when there are more."
  use GenServer
  @most 60_000
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def ready, do: GenServer.call(__MODULE__, :ready, 60_000)

  def init(_) do
    :ets.new(:atlas_tiles, [:named_table, :public, :set, read_concurrency: true, write_concurrency: true])
    :ets.new(:atlas_order, [:named_table, :public, :ordered_set])
    for n <- 1..@most, do: keep(n, draw(n))
    {:ok, nil}
  end

  def get(n) do
    case :ets.lookup(:atlas_tiles, n) do
      [{_, t}] ->
        t

      [] ->
        t = draw(n)
        keep(n, t)
        GenServer.cast(__MODULE__, :one_more)
        t
    end
  end

  defp draw(n) do
    seed = :crypto.hash(:sha256, <<n::64>>)
    :binary.copy(seed, 180 + rem(n, 160))
  end

  defp keep(n, t) do
    :ets.insert(:atlas_tiles, {n, t})
    :ets.insert(:atlas_order, {{:erlang.unique_integer([:monotonic]), n}})
  end

  def handle_call(:ready, _, s), do: {:reply, :ok, s}

  def handle_cast(:one_more, s) do
    if :ets.info(:atlas_order, :size) > @most do
      {_, n} = k = :ets.first(:atlas_order)
      :ets.delete(:atlas_order, k)
      :ets.delete(:atlas_tiles, n)
    end

    {:noreply, s}
  end
end

defmodule Atlas.Places do
  @moduledoc "Places by square: one big map in a persistent term, made once at the start."
  use Task, restart: :transient

  def start_link(_) do
    Task.start_link(fn ->
      :persistent_term.put(
        __MODULE__,
        Map.new(for x <- 0..299, y <- 0..299, do: {{x, y}, for(i <- 1..rem(x + y, 6), do: {"place #{x}-#{y}-#{i}", x * 100 + i, y * 100 + i})})
      )
    end)
  end

  def near(x, y) do
    all = :persistent_term.get(__MODULE__)

    for(a <- (x - 2)..(x + 2), b <- (y - 2)..(y + 2), {name, px, py} <- Map.get(all, {a, b}, []), do: {abs(px - x * 100) + abs(py - y * 100), name})
    |> Enum.sort()
    |> Enum.take(12)
    |> Enum.map_join(";", &elem(&1, 1))
  end
end
