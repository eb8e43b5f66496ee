defmodule Clinic do
  use Application
  def start(_, _), do: Clinic.Sup.start_link()
end

defmodule Clinic.Sup do
  use Supervisor
  def start_link, do: Supervisor.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    desks = for n <- 1..12, do: Supervisor.child_spec({Clinic.Desk, n}, id: {:desk, n})
    Supervisor.init([Clinic.Log, {Task.Supervisor, name: Clinic.Tasks}, Clinic.Pool, Clinic.Figures, Clinic.Doors] ++ desks, strategy: :one_for_one)
  end
end

defmodule Clinic.Log do
  use Agent
  def start_link(_), do: Agent.start_link(fn -> %{} end, name: __MODULE__)
  def count(what), do: Agent.update(__MODULE__, &Map.update(&1, what, 1, fn n -> n + 1 end))
  def all, do: Agent.get(__MODULE__, & &1)
end

defmodule Clinic.Conn do
  @moduledoc "one connection to the database"
  use GenServer
  def start_link(n), do: GenServer.start_link(__MODULE__, n)
  def query(conn, q, timeout \\ 60_000), do: GenServer.call(conn, {:query, q}, timeout)

  def init(_) do
    port = String.to_integer(System.fetch_env!("DB_PORT"))
    :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, active: false, packet: :line, nodelay: true])
  end

  def handle_call({:query, q}, _from, sock) do
    :ok = :gen_tcp.send(sock, [q, "\n"])
    {:ok, line} = :gen_tcp.recv(sock, 0)
    {:reply, {:ok, String.trim(line)}, sock}
  end
end

defmodule Clinic.Pool do
  @moduledoc "hands the connections out, first come first served"
  use GenServer
  @size 6
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def run(fun, timeout) do
    ref = make_ref()

    try do
      GenServer.call(__MODULE__, {:checkout, ref}, timeout)
    catch
      :exit, reason ->
        GenServer.cast(__MODULE__, {:cancel, ref})
        exit(reason)
    else
      conn ->
        try do
          fun.(conn)
        after
          GenServer.cast(__MODULE__, {:checkin, conn})
        end
    end
  end

  def init(_) do
    conns = for n <- 1..@size, {:ok, pid} = Clinic.Conn.start_link(n), do: pid
    {:ok, %{free: conns, waiting: :queue.new()}}
  end

  def handle_call({:checkout, _}, _from, %{free: [c | free]} = s), do: {:reply, c, %{s | free: free}}
  def handle_call({:checkout, ref}, from, s), do: {:noreply, %{s | waiting: :queue.in({ref, from}, s.waiting)}}

  def handle_cast({:checkin, c}, s) do
    case :queue.out(s.waiting) do
      {{:value, {_, from}}, q} ->
        GenServer.reply(from, c)
        {:noreply, %{s | waiting: q}}

      {:empty, _} ->
        {:noreply, %{s | free: [c | s.free]}}
    end
  end

  def handle_cast({:cancel, ref}, s), do: {:noreply, %{s | waiting: :queue.filter(fn {r, _} -> r != ref end, s.waiting)}}
end

defmodule Clinic.Figures do
  @moduledoc "the figures for the management, brought up to date each second"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    :ets.new(:figures, [:named_table, :public])
    :timer.send_interval(1000, :refresh)
    {:ok, 0}
  end

  def handle_info(:refresh, n) do
    Task.Supervisor.start_child(Clinic.Tasks, fn -> rebuild(n) end)
    {:noreply, n + 1}
  end

  defp rebuild(n) do
    Clinic.Pool.run(
      fn conn ->
        for ward <- 1..14 do
          {:ok, row} = Clinic.Conn.query(conn, "SUM ward#{ward}")
          :ets.insert(:figures, {ward, row, n})
        end
      end,
      :infinity
    )
  end
end

defmodule Clinic.Desk do
  @moduledoc "a reception desk: looks patients up, books appointments"
  use GenServer
  def start_link(n), do: GenServer.start_link(__MODULE__, n)

  def init(n) do
    Process.send_after(self(), :patient, 100 * n)
    {:ok, n}
  end

  def handle_info(:patient, n) do
    me = self()

    spawn(fn ->
      try do
        {:ok, _} = Clinic.Pool.run(fn conn -> Clinic.Conn.query(conn, "GET #{:rand.uniform(100_000)}") end, 8000)
        Clinic.Log.count(:served)
      catch
        :exit, _ -> Clinic.Log.count(:timed_out)
      end

      send(me, :done)
    end)

    Process.send_after(self(), :patient, 900 + :rand.uniform(200))
    {:noreply, n}
  end

  def handle_info(:done, n), do: {:noreply, n}
end

defmodule Clinic.Doors do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    :timer.send_interval(50, :scan)
    {:ok, %{}}
  end

  def handle_info(:scan, m), do: {:noreply, Map.put(m, :rand.uniform(200), System.monotonic_time())}
end
