defmodule Bakery.Application do
  use Application

  def start(_, _) do
    :ets.new(:bakery_counts, [:named_table, :public, write_concurrency: true])
    for k <- [:done, :refused, :baked], do: :ets.insert(:bakery_counts, {k, 0})

    children = [
      {Registry, keys: :unique, name: Bakery.Names},
      Bakery.PriceList,
      {Task.Supervisor, name: Bakery.Orders, max_children: 2000},
      {DynamicSupervisor, name: Bakery.Ovens, strategy: :one_for_one, max_restarts: 100, max_seconds: 5},
      Bakery.Plan,
      {Task, fn -> Bakery.Counter.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Bakery.Supervisor)
  end
end

defmodule Bakery.PriceList do
  @moduledoc "Prices of all branches; big, but read from once and kept; asked for single prices only."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def price(branch, item), do: GenServer.call(__MODULE__, {:price, branch, item})

  def init(_) do
    {:ok, for(b <- 1..400, into: %{}, do: {b, for(i <- 1..900, into: %{}, do: {i, {"item #{i}", 80 + rem(b * i, 500)}})}), {:continue, :trim}}
  end

  def handle_continue(:trim, s) do
    :erlang.garbage_collect()
    {:noreply, s}
  end

  def handle_call({:price, b, i}, _, s), do: {:reply, s |> Map.fetch!(b) |> Map.fetch!(i), s}
end

defmodule Bakery.Order do
  @moduledoc "An order is a process that lives until it has been served (about half a second)."
  def run(socket, id, branch, items) do
    Process.put(:order, id)
    total = for(i <- items, do: elem(Bakery.PriceList.price(branch, i), 1)) |> Enum.sum()

    if total > 3200 do
      :ets.update_counter(:bakery_counts, :refused, 1)
      send_line(socket, "#{id} refused")
      # orders over the limit end as errors on purpose, whoever watches them sees it
      exit({:shutdown, :over_the_limit})
    end

    Process.sleep(300 + :rand.uniform(400))
    body = for(i <- items, do: "#{i}:#{:erlang.phash2({id, i})};") |> IO.iodata_to_binary()
    :ets.update_counter(:bakery_counts, :done, 1)
    send_line(socket, "#{id} #{total} #{byte_size(body)}")
  end

  defp send_line(s, l), do: :gen_tcp.send(s, [l, "\n"])
end

defmodule Bakery.Oven do
  @moduledoc "A charge in an oven: a process for a few seconds."
  use GenServer, restart: :temporary
  def start_link(n), do: GenServer.start_link(__MODULE__, n, name: {:via, Registry, {Bakery.Names, {:charge, n}}})

  def init(n) do
    Process.send_after(self(), :done, 2000 + :rand.uniform(3000))
    {:ok, %{n: n, dough: Enum.map(1..200, fn i -> {i, :rand.uniform()} end)}}
  end

  def handle_info(:done, s) do
    :ets.update_counter(:bakery_counts, :baked, 1)
    {:stop, :normal, s}
  end
end

defmodule Bakery.Plan do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :charge, 100)
    {:ok, 0}
  end

  def handle_info(:charge, n) do
    for i <- 1..8, do: {:ok, _} = DynamicSupervisor.start_child(Bakery.Ovens, {Bakery.Oven, n * 8 + i})
    Process.send_after(self(), :charge, 200)
    {:noreply, n + 1}
  end
end

defmodule Bakery.Counter do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 128])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Bakery.Orders, fn -> serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end

  defp serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        [id, branch | items] = line |> String.split() |> Enum.map(&String.to_integer/1)
        {:ok, _} = Task.Supervisor.start_child(Bakery.Orders, fn -> Bakery.Order.run(s, id, branch, items) end)
        serve(s)

      {:error, _} ->
        :ok
    end
  end
end
