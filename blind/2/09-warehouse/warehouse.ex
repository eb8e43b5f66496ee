defmodule Warehouse.Application do
  use Application

  def start(_type, _args) do
    children = [
      Warehouse.Search,
      Warehouse.Carriers,
      Warehouse.Pricing,
      Warehouse.Stock,
      Warehouse.Reservations,
      {Task.Supervisor, name: Warehouse.Requests}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Warehouse.Supervisor)
  end
end

defmodule Warehouse.Search do
  @moduledoc "Reads only; each search is done by the caller."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def find(word) do
    :ets.select(:warehouse_articles, [{{:"$1", word, :_}, [], [:"$1"]}]) |> Enum.take(20)
  end

  def init(_) do
    :ets.new(:warehouse_articles, [:named_table, :protected, read_concurrency: true])
    for i <- 1..3000, do: :ets.insert(:warehouse_articles, {i, rem(i, 200), "article #{i}"})
    {:ok, nil}
  end
end

defmodule Warehouse.Carriers do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def pickup(zip), do: GenServer.call(__MODULE__, {:pickup, zip})
  def init(_), do: {:ok, %{}}
  def handle_call({:pickup, zip}, _from, s), do: {:reply, rem(zip, 5) + 1, Map.update(s, rem(zip, 100), 1, &(&1 + 1))}
end

defmodule Warehouse.Stock do
  use GenServer
  alias Warehouse.Pricing

  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  # the timeouts came up in the error reports too often
  def pick(customer, article), do: GenServer.call(__MODULE__, {:pick, customer, article}, :infinity)
  def release(articles), do: GenServer.call(__MODULE__, {:release, articles}, :infinity)
  def on_hand(article), do: GenServer.call(__MODULE__, {:on_hand, article}, 5000)

  def init(_), do: {:ok, Map.new(1..3000, &{&1, 50})}

  def handle_call({:pick, customer, article}, _from, stock) do
    case stock[article] do
      0 ->
        {:reply, :sold_out, stock}

      n ->
        price = Pricing.price(customer, article)
        Warehouse.Reservations.reserve(customer, article)
        {:reply, {:ok, price}, Map.put(stock, article, n - 1)}
    end
  end

  def handle_call({:release, articles}, _from, stock) do
    {:reply, :ok, Enum.reduce(articles, stock, fn a, s -> Map.update!(s, a, &(&1 + 1)) end)}
  end

  def handle_call({:on_hand, article}, _from, stock), do: {:reply, stock[article], stock}
end

defmodule Warehouse.Pricing do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def price(customer, article), do: GenServer.call(__MODULE__, {:price, customer, article}, :infinity)

  def init(_), do: {:ok, Map.new(1..3000, &{&1, 100 + rem(&1 * 37, 5000)})}

  def handle_call({:price, customer, article}, _from, prices) do
    base = prices[article]

    # regular customers get something off for what they have reserved already
    price =
      if rem(customer, 4) == 0 do
        most = most_off(customer, base)
        open = Warehouse.Reservations.open(customer)
        base - min(most, open * 5)
      else
        base
      end

    {:reply, price, prices}
  end

  # the scale of discounts, step by step
  defp most_off(customer, base) do
    Enum.reduce(1..20_000, div(base, 10), fn n, acc -> rem(acc * 7 + n * customer, div(base, 10) + 1) end)
  end
end

defmodule Warehouse.Reservations do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def reserve(customer, article), do: GenServer.cast(__MODULE__, {:reserve, customer, article})
  def open(customer), do: GenServer.call(__MODULE__, {:open, customer}, :infinity)

  def init(_) do
    Process.send_after(self(), :sweep, 300)
    {:ok, []}
  end

  def handle_cast({:reserve, customer, article}, list) do
    {:noreply, [{customer, article, System.monotonic_time(:millisecond) + 1500} | list]}
  end

  def handle_call({:open, customer}, _from, list), do: {:reply, Enum.count(list, &(elem(&1, 0) == customer)), list}

  # what has not been paid in time goes back into the shelf
  def handle_info(:sweep, list) do
    now = System.monotonic_time(:millisecond)
    {over, left} = Enum.split_with(list, fn {_, _, t} -> t < now end)
    if over != [], do: Warehouse.Stock.release(Enum.map(over, &elem(&1, 1)))
    Process.send_after(self(), :sweep, 20)
    {:noreply, left}
  end
end

defmodule Warehouse.Load do
  @moduledoc "People who look around, and people who buy."
  def start(lookers, buyers) do
    :ets.new(:warehouse_times, [:named_table, :public, write_concurrency: true]) 
    for _ <- 1..lookers, do: spawn(fn -> look() end)
    for i <- 1..buyers, do: spawn(fn -> buy(i) end)
    Process.sleep(:infinity)
  end

  defp look do
    Process.sleep(30 + :rand.uniform(90))
    Warehouse.Search.find(:rand.uniform(200))
    Warehouse.Carriers.pickup(:rand.uniform(99_999))
    :ets.update_counter(:warehouse_times, :looked, 1, {:looked, 0})
    look()
  end

  # every purchase is a process of its own; the browser gives up after 20 s and tries once more
  defp buy(i) do
    Process.sleep(100 + :rand.uniform(200))
    task = Task.Supervisor.async_nolink(Warehouse.Requests, fn -> Warehouse.Stock.pick(:rand.uniform(400), :rand.uniform(3000)) end)

    case Task.yield(task, 20_000) || Task.ignore(task) do
      {:ok, _} -> :ets.update_counter(:warehouse_times, :bought, 1, {:bought, 0})
      _ -> :ets.update_counter(:warehouse_times, :gave_up, 1, {:gave_up, 0})
    end

    buy(i)
  end
end
