defmodule Checkout.Application do
  use Application

  def start(_type, _args) do
    children = [
      {Registry, keys: :unique, name: Checkout.Names},
      Checkout.Prices,
      Checkout.Reservations,
      Checkout.Journal,
      {DynamicSupervisor, name: Checkout.Tills, strategy: :one_for_one},
      {Task, fn -> for i <- 1..160, do: DynamicSupervisor.start_child(Checkout.Tills, {Checkout.Till, i}) end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Checkout.Supervisor)
  end
end

defmodule Checkout.Prices do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def price(article), do: :ets.lookup_element(__MODULE__, article, 2)

  def init(_) do
    t = :ets.new(__MODULE__, [:named_table, read_concurrency: true])
    for a <- 1..5000, do: :ets.insert(t, {a, a * 7})
    {:ok, t}
  end
end

defmodule Checkout.Reservations do
  @moduledoc "Holds an article for a till until it is paid or put back, or the till is gone"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def reserve(article), do: GenServer.call(__MODULE__, {:reserve, article})
  def release(ref), do: GenServer.cast(__MODULE__, {:release, ref})
  def init(_), do: {:ok, %{}}

  def handle_call({:reserve, article}, {pid, _}, held) do
    ref = Process.monitor(pid)
    {:reply, {:ok, ref}, Map.put(held, ref, {pid, article})}
  end

  def handle_call(:held, _from, held), do: {:reply, map_size(held), held}

  def handle_cast({:release, ref}, held), do: {:noreply, Map.delete(held, ref)}

  def handle_info({:DOWN, ref, :process, _, _}, held), do: {:noreply, Map.delete(held, ref)}
end

defmodule Checkout.Journal do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def sale(till, sum), do: GenServer.cast(__MODULE__, {:sale, till, sum})
  def init(_), do: {:ok, {0, 0, []}}
  def handle_cast({:sale, till, sum}, {n, total, last}), do: {:noreply, {n + 1, total + sum, Enum.take([{till, sum} | last], 50)}}
end

defmodule Checkout.Till do
  use GenServer
  def start_link(i), do: GenServer.start_link(__MODULE__, i, name: {:via, Registry, {Checkout.Names, {:till, i}}})

  def init(i) do
    Process.send_after(self(), :customer, 500 + i * 5)
    {:ok, %{id: i, sales: 0}}
  end

  def handle_info(:customer, s) do
    Process.send_after(self(), :customer, 800 + :rand.uniform(400))
    articles = for _ <- 1..7, do: :rand.uniform(5000)
    refs = for a <- articles, {:ok, r} = Checkout.Reservations.reserve(a), do: r
    sum = articles |> Enum.map(&Checkout.Prices.price/1) |> Enum.sum()
    Checkout.Journal.sale(s.id, sum)
    Enum.each(refs, &Checkout.Reservations.release/1)
    {:noreply, %{s | sales: s.sales + 1}}
  end
end
