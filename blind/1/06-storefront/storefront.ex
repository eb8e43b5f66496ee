defmodule Storefront.Application do
  use Application

  @impl true
  def start(_type, _args) do
    children = [
      Storefront.Telemetry,
      {Storefront.Repo.Pool, size: 10},
      {Task.Supervisor, name: Storefront.Requests}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Storefront.Supervisor)
  end
end

defmodule Storefront.Repo do
  @moduledoc "A small database layer: a pool of connections, queries, transactions."
  alias Storefront.Repo.{Connection, Pool}

  def query(sql, timeout \\ 8_000), do: Pool.run(fn conn -> Connection.query(conn, sql) end, timeout)

  def transaction(fun, timeout \\ 8_000) do
    Pool.run(
      fn conn ->
        Connection.query(conn, "BEGIN")

        case fun.(conn) do
          {:ok, value} ->
            Connection.query(conn, "COMMIT")
            {:ok, value}

          {:error, why} ->
            Connection.query(conn, "ROLLBACK")
            {:error, why}
        end
      end,
      timeout
    )
  end
end

defmodule Storefront.Repo.Pool do
  @moduledoc "Lends the connections; who finds none waits in the queue until one comes back or the time is over."
  use GenServer
  alias Storefront.Repo.Connection

  def start_link(opts), do: GenServer.start_link(__MODULE__, opts, name: __MODULE__)

  def run(fun, timeout) do
    t0 = System.monotonic_time(:millisecond)

    case GenServer.call(__MODULE__, {:checkout, t0 + timeout}, :infinity) do
      {:ok, conn, ref} ->
        Storefront.Telemetry.span(:queue_time, System.monotonic_time(:millisecond) - t0)

        try do
          fun.(conn)
        after
          GenServer.cast(__MODULE__, {:checkin, conn, ref})
        end

      {:error, :dropped} ->
        Storefront.Telemetry.span(:dropped, System.monotonic_time(:millisecond) - t0)
        {:error, :connection_not_available}
    end
  end

  @impl true
  def init(opts) do
    conns = for _ <- 1..opts[:size], {:ok, pid} = Connection.start_link([]), do: pid
    :timer.send_interval(500, :drop_expired)
    {:ok, %{idle: conns, busy: %{}, queue: :queue.new()}}
  end

  @impl true
  def handle_call({:checkout, deadline}, {pid, _} = from, s) do
    case s.idle do
      [conn | rest] -> {:noreply, lend(conn, from, pid, %{s | idle: rest})}
      [] -> {:noreply, %{s | queue: :queue.in({from, deadline}, s.queue)}}
    end
  end

  @impl true
  def handle_cast({:checkin, conn, ref}, s) do
    Process.demonitor(ref, [:flush])
    {:noreply, back(conn, %{s | busy: Map.delete(s.busy, ref)})}
  end

  @impl true
  def handle_info({:DOWN, ref, :process, _, _}, s) do
    {conn, busy} = Map.pop!(s.busy, ref)
    {:noreply, back(conn, %{s | busy: busy})}
  end

  def handle_info(:drop_expired, s) do
    now = System.monotonic_time(:millisecond)

    queue =
      :queue.filter(
        fn {from, deadline} ->
          if deadline < now, do: GenServer.reply(from, {:error, :dropped})
          deadline >= now
        end,
        s.queue
      )

    {:noreply, %{s | queue: queue}}
  end

  defp lend(conn, from, pid, s) do
    ref = Process.monitor(pid)
    GenServer.reply(from, {:ok, conn, ref})
    %{s | busy: Map.put(s.busy, ref, conn)}
  end

  defp back(conn, s) do
    case :queue.out(s.queue) do
      {{:value, {{pid, _} = from, _}}, queue} -> lend(conn, from, pid, %{s | queue: queue})
      {:empty, _} -> %{s | idle: [conn | s.idle]}
    end
  end
end

defmodule Storefront.Repo.Connection do
  @moduledoc "A connection to the database server (line protocol)."
  use GenServer

  def start_link(opts), do: GenServer.start_link(__MODULE__, opts)
  def query(conn, sql), do: GenServer.call(conn, {:query, sql}, 15_000)

  @impl true
  def init(_) do
    port = String.to_integer(System.fetch_env!("DB_PORT"))
    {:ok, socket} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, packet: :line, active: false])
    {:ok, socket}
  end

  @impl true
  def handle_call({:query, sql}, _from, socket) do
    :ok = :gen_tcp.send(socket, [sql, ?\n])
    {:ok, line} = :gen_tcp.recv(socket, 0, 10_000)
    {:reply, {:ok, String.trim(line)}, socket}
  end
end

defmodule Storefront.Shipping do
  @moduledoc "The carrier's web service that makes a label; HTTP over a new connection each time."

  def create_label(order_id) do
    port = String.to_integer(System.fetch_env!("CARRIER_PORT"))
    {:ok, s} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, packet: :line, active: false])
    :ok = :gen_tcp.send(s, "POST /labels?order=#{order_id}\n")
    answer = :gen_tcp.recv(s, 0, 30_000)
    :gen_tcp.close(s)
    with {:ok, line} <- answer, do: {:ok, String.trim(line)}
  end
end

defmodule Storefront.Orders do
  alias Storefront.{Repo, Repo.Connection, Shipping}

  def place(order_id) do
    Repo.transaction(fn conn ->
      {:ok, _} = Connection.query(conn, "INSERT INTO orders VALUES (#{order_id}, 'new')")
      {:ok, _} = Connection.query(conn, "UPDATE stock SET n = n - 1 WHERE order = #{order_id}")
      {:ok, label} = Shipping.create_label(order_id)
      {:ok, _} = Connection.query(conn, "UPDATE orders SET label = '#{label}' WHERE id = #{order_id}")
      {:ok, label}
    end)
  end
end

defmodule Storefront.Web do
  alias Storefront.{Orders, Repo, Telemetry}

  def product_page(id) do
    timed(:product_page, fn ->
      with {:ok, row} <- Repo.query("SELECT * FROM products WHERE id = #{id}"), do: {200, row}, else: (_ -> {503, ""})
    end)
  end

  def order(id) do
    timed(:order, fn -> with {:ok, label} <- Orders.place(id), do: {201, label}, else: (_ -> {503, ""}) end)
  end

  defp timed(what, fun) do
    t0 = System.monotonic_time(:millisecond)
    {status, _} = fun.()
    Telemetry.span({what, status}, System.monotonic_time(:millisecond) - t0)
    status
  end
end

defmodule Storefront.Telemetry do
  use GenServer
  @table __MODULE__
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def span(what, ms), do: :ets.update_counter(@table, what, [{2, 1}, {3, ms}], {what, 0, 0})

  @impl true
  def init(_) do
    :ets.new(@table, [:named_table, :public, write_concurrency: true])
    {:ok, nil}
  end
end
