defmodule Grocer.Application do
  use Application

  def start(_type, _args) do
    children = [
      Grocer.Baskets,
      Grocer.Prices,
      {Registry, keys: :unique, name: Grocer.Names},
      {DynamicSupervisor, name: Grocer.Visits},
      {Task, fn -> Grocer.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Grocer.Supervisor)
  end
end

defmodule Grocer.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 512])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = DynamicSupervisor.start_child(Grocer.Visits, {Grocer.Visit, s})
    :ok = :gen_tcp.controlling_process(s, pid)
    send(pid, :go)
    accept(l)
  end
end

defmodule Grocer.Visit do
  @moduledoc "One visitor: a process that holds the connection and fills the basket."
  use GenServer, restart: :temporary

  def start_link(socket), do: GenServer.start_link(__MODULE__, socket)

  def init(socket), do: {:ok, %{socket: socket, user: nil}}

  def handle_info(:go, s) do
    :inet.setopts(s.socket, active: :once)
    {:noreply, s}
  end

  def handle_info({:tcp, sock, line}, s) do
    s = handle(String.split(String.trim(line), " "), s)
    :inet.setopts(sock, active: :once)

    case s do
      :bye -> {:stop, :normal, %{user: nil}}
      s -> {:noreply, s}
    end
  end

  # the browser went away
  def handle_info({:tcp_closed, _}, s), do: {:stop, {:shutdown, :gone}, s}
  def handle_info({:tcp_error, _, _}, s), do: {:stop, {:shutdown, :gone}, s}

  defp handle(["hello", user], s) do
    {:ok, _} = Registry.register(Grocer.Names, user, nil)
    Grocer.Baskets.open(self(), user)
    %{s | user: user}
  end

  defp handle(["add", sku, n], s) do
    Grocer.Baskets.add(self(), sku, String.to_integer(n), Grocer.Prices.of(sku))
    reply(s, "ok")
  end

  defp handle(["total"], s), do: reply(s, Integer.to_string(Grocer.Baskets.total(self())))

  defp handle(["checkout"], s) do
    reply(s, "paid " <> Integer.to_string(Grocer.Baskets.total(self())))
    Grocer.Baskets.close(self())
    :gen_tcp.close(s.socket)
    :bye
  end

  defp reply(s, text) do
    :gen_tcp.send(s.socket, [text, "\n"])
    s
  end
end

defmodule Grocer.Baskets do
  @moduledoc "The open baskets; one row for each visit: {visit, user, [{sku, n, price, text}]}"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:grocer_baskets, [:named_table, :public, :set, write_concurrency: true])
    {:ok, nil}
  end

  def open(visit, user), do: :ets.insert(:grocer_baskets, {visit, user, []})
  def close(visit), do: :ets.delete(:grocer_baskets, visit)

  def add(visit, sku, n, {price, text}) do
    [{_, user, items}] = :ets.lookup(:grocer_baskets, visit)
    :ets.insert(:grocer_baskets, {visit, user, [{sku, n, price, text} | items]})
  end

  def total(visit) do
    [{_, _, items}] = :ets.lookup(:grocer_baskets, visit)
    Enum.reduce(items, 0, fn {_, n, p, _}, a -> a + n * p end)
  end
end

defmodule Grocer.Prices do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:grocer_prices, [:named_table, :protected, :set, read_concurrency: true])
    for i <- 1..4000, do: :ets.insert(:grocer_prices, {"s#{i}", {50 + rem(i * 37, 900), ~c"organic groceries, article number #{i}"}})
    {:ok, nil}
  end

  def of(sku) do
    [{_, p}] = :ets.lookup(:grocer_prices, sku)
    p
  end
end
