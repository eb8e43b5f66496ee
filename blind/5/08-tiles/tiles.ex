defmodule Tiles do
  use Application
  def start(_, _), do: Tiles.Sup.start_link()
end

defmodule Tiles.Sup do
  use Supervisor
  def start_link, do: Supervisor.start_link(__MODULE__, [], name: __MODULE__)
  def init(_), do: Supervisor.init([Tiles.Store, Tiles.Expire, Tiles.Usage, {Task.Supervisor, name: Tiles.Painters}, Tiles.Front], strategy: :one_for_one)
end

defmodule Tiles.Store do
  @moduledoc "painted tiles in memory, 9000 of 48 KB at most"
  use GenServer
  @max 9000
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def get(k), do: :ets.lookup(:tiles, k)
  def put(k, png), do: GenServer.cast(__MODULE__, {:put, k, png})

  def init(_) do
    :ets.new(:tiles, [:named_table, :protected, :set, read_concurrency: true])
    {:ok, Enum.reduce(1..@max, :queue.new(), fn n, q -> keep({:old, n}, :binary.copy(<<n::32>>, 12_000), q) end)}
  end

  defp keep(k, png, q) do
    :ets.insert(:tiles, {k, png, System.monotonic_time()})
    :queue.in(k, q)
  end

  def handle_cast({:put, k, png}, q) do
    if :ets.member(:tiles, k) do
      {:noreply, q}
    else
      q = keep(k, png, q)
      {{:value, old}, q} = :queue.out(q)
      :ets.delete(:tiles, old)
      {:noreply, q}
    end
  end
end

defmodule Tiles.Painter do
  @moduledoc "paints a tile: some milliseconds of CPU, a process of its own"
  def paint({z, x, y} = k) do
    rows = for r <- 0..59, do: :erlang.term_to_binary({z, r, for(c <- 0..39, do: :erlang.phash2({k, r, c}, 255))})
    raw = :erlang.iolist_to_binary(rows)
    png = :zlib.compress(raw) |> :binary.copy(40) |> binary_part(0, 48_000) |> :binary.copy()
    Tiles.Store.put({z, x, y}, png)
    png
  end
end

defmodule Tiles.Front do
  use Task, restart: :permanent
  def start_link(_), do: Task.start_link(__MODULE__, :run, [])

  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, reuseaddr: true, ip: {127, 0, 0, 1}, nodelay: true, backlog: 512])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), "#{port}")
    for _ <- 1..3, do: spawn_link(fn -> accept(l) end)
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    pid = spawn(fn -> receive do: (:go -> serve(s)) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    send(pid, :go)
    accept(l)
  end

  defp serve(s) do
    case :gen_tcp.recv(s, 0, 30_000) do
      {:ok, line} ->
        [z, x, y] = line |> String.trim() |> String.split("/") |> Enum.map(&String.to_integer/1)
        k = {z, x, y}

        png =
          case Tiles.Store.get(k) do
            [{_, png, _}] -> png
            [] -> Task.Supervisor.async_nolink(Tiles.Painters, Tiles.Painter, :paint, [k]) |> Task.await()
          end

        Tiles.Usage.seen(z)
        :gen_tcp.send(s, ["#{byte_size(png)}\n", png])
        serve(s)

      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Tiles.Usage do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def seen(z), do: :ets.update_counter(:usage, z, 1, {z, 0})

  def init(_) do
    :ets.new(:usage, [:named_table, :public, write_concurrency: true])
    :timer.send_interval(1000, :roll)
    {:ok, []}
  end

  def handle_info(:roll, l), do: {:noreply, Enum.take([:ets.tab2list(:usage) | l], 30)}
end

defmodule Tiles.Expire do
  @moduledoc "once in 20 s looks through the store"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    :timer.send_interval(20_000, :look)
    {:ok, 0}
  end

  def handle_info(:look, _), do: {:noreply, :ets.foldl(fn {_, _, t}, n -> if System.monotonic_time() - t > 60_000_000_000, do: n + 1, else: n end, 0, :tiles)}
end
