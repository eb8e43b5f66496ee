defmodule Cinema.Application do
  use Application

  def start(_, _) do
    children = [
      Cinema.Monitoring.Store,
      {Task.Supervisor, name: Cinema.Monitoring.Tasks},
      Cinema.Monitoring.Harvester,
      Cinema.Seats,
      Cinema.Feed,
      {Task.Supervisor, name: Cinema.Requests},
      {Task, fn -> Cinema.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Cinema.Supervisor)
  end
end

defmodule Cinema.Monitoring.Store do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:cinema_segments, [:named_table, :public, :duplicate_bag, write_concurrency: true])
    :ets.new(:cinema_transactions, [:named_table, :public, :set, write_concurrency: true])
    :ets.new(:cinema_harvest, [:named_table, :public, :set])
    {:ok, nil}
  end
end

defmodule Cinema.Monitoring do
  @moduledoc """
  A transaction (a request, a message) consists of segments (what was called, how long it took).
  With its end the segments are summed up and dropped. Open transactions are summed up at each harvest.
  """
  def start(name), do: :ets.insert(:cinema_transactions, {self(), name, System.monotonic_time(:millisecond)})

  def segment(name, fun) do
    t = System.monotonic_time(:microsecond)
    r = fun.()
    :ets.insert(:cinema_segments, {self(), name, System.monotonic_time(:microsecond) - t})
    r
  end

  def complete do
    pid = self()
    [{_, name, _}] = :ets.take(:cinema_transactions, pid)
    segments = :ets.take(:cinema_segments, pid)
    :ets.insert(:cinema_harvest, {name, sum_up(segments)})
  end

  def sum_up(segments) do
    Enum.reduce(segments, %{}, fn {_, name, us}, acc ->
      Map.update(acc, name, %{n: 1, us: us, max: us}, fn s -> %{s | n: s.n + 1, us: s.us + us, max: max(s.max, us)} end)
    end)
  end
end

defmodule Cinema.Monitoring.Harvester do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :harvest, 1000)
    {:ok, 0}
  end

  def handle_info(:harvest, n) do
    for {pid, name, _} <- :ets.tab2list(:cinema_transactions) do
      Task.Supervisor.start_child(Cinema.Monitoring.Tasks, fn ->
        :ets.insert(:cinema_harvest, {{:open, name}, Cinema.Monitoring.sum_up(:ets.lookup(:cinema_segments, pid))})
      end)
    end

    Process.send_after(self(), :harvest, 400)
    {:noreply, n + 1}
  end
end

defmodule Cinema.Seats do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def free(show), do: :ets.lookup_element(__MODULE__, show, 2)
  def sell(show, n), do: :ets.update_counter(__MODULE__, show, {2, -n, 0, 300})

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :public, write_concurrency: true])
    for s <- 1..500, do: :ets.insert(__MODULE__, {s, 300})
    {:ok, nil}
  end
end

defmodule Cinema.Feed do
  @moduledoc "Takes the sales of the box offices in, one after the other, as they come."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def sale(show, n), do: GenServer.cast(__MODULE__, {:sale, show, n})

  def init(_) do
    Cinema.Monitoring.start("feed")
    {:ok, %{sales: 0}}
  end

  def handle_cast({:sale, show, n}, s) do
    Cinema.Monitoring.segment("seats.sell", fn -> Cinema.Seats.sell(show, n) end)
    {:noreply, %{s | sales: s.sales + 1}}
  end
end

defmodule Cinema.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, nodelay: true, backlog: 128, recbuf: 65536])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Cinema.Requests, fn -> serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end

  defp serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        case String.split(line) do
          ["sold", show, n] ->
            Cinema.Feed.sale(String.to_integer(show), String.to_integer(n))

          ["free", show] ->
            Cinema.Monitoring.start("free")
            n = Cinema.Monitoring.segment("seats.free", fn -> Cinema.Seats.free(String.to_integer(show)) end)
            page = Cinema.Monitoring.segment("page", fn -> for(i <- 1..n//7, do: "seat #{i} ") |> IO.iodata_to_binary() end)
            Cinema.Monitoring.complete()
            :ok = :gen_tcp.send(s, "#{n} #{byte_size(page)}\n")
        end

        serve(s)

      {:error, _} ->
        :ok
    end
  end
end
