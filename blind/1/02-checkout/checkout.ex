defmodule Checkout.Application do
  use Application

  @impl true
  def start(_type, _args) do
    children = [
      Checkout.Metrics,
      {PartitionSupervisor, child_spec: Checkout.CartStore, name: Checkout.CartStores, partitions: 8},
      Checkout.Tax,
      {Task.Supervisor, name: Checkout.Requests}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Checkout.Supervisor)
  end
end

defmodule Checkout.CartStore do
  use GenServer
  def start_link(opts), do: GenServer.start_link(__MODULE__, opts)
  def add(user, item), do: GenServer.call(via(user), {:add, user, item})
  def take(user), do: GenServer.call(via(user), {:take, user})
  defp via(user), do: {:via, PartitionSupervisor, {Checkout.CartStores, user}}

  @impl true
  def init(_), do: {:ok, %{}}

  @impl true
  def handle_call({:add, user, item}, _from, carts) do
    cart = [item | Map.get(carts, user, [])]
    {:reply, cart, Map.put(carts, user, cart)}
  end

  def handle_call({:take, user}, _from, carts) do
    {cart, carts} = Map.pop(carts, user, [])
    {:reply, cart, carts}
  end
end

defmodule Checkout.Tax do
  @moduledoc "Tax rates, kept by an Agent, reloaded now and then."
  use Agent
  @regions ~w(AT BE CH DE DK ES FI FR IT LU NL NO PL PT SE)
  def start_link(_), do: Agent.start_link(fn -> load() end, name: __MODULE__)
  def rate(region), do: Agent.get(__MODULE__, &Map.fetch!(&1, region))
  def regions, do: @regions
  defp load, do: @regions |> Enum.with_index() |> Map.new(fn {r, i} -> {r, 0.15 + i / 200} end)
end

defmodule Checkout.Api do
  require Logger
  alias Checkout.{CartStore, Metrics, Tax}

  def add_item(user, sku, qty) do
    timed(:add_item, fn ->
      item = %{sku: sku, qty: qty, price: 199 + :erlang.phash2(sku, 9_000), added_at: DateTime.utc_now()}
      Logger.info("POST /cart/items user=#{user} sku=#{sku} qty=#{qty}", request_id: request_id())
      cart = CartStore.add(user, item)
      Logger.debug(fn -> "cart of user #{user} is now #{inspect(cart, pretty: true, limit: :infinity)}" end)
      {:ok, length(cart)}
    end)
  end

  def pay(user, region) do
    timed(:pay, fn ->
      Logger.info("POST /orders user=#{user} region=#{region}", request_id: request_id())
      cart = CartStore.take(user)
      net = Enum.reduce(cart, 0, &(&1.qty * &1.price + &2))
      total = round(net * (1 + Tax.rate(region)))
      Logger.debug(fn -> "order of user #{user}: #{inspect(cart, pretty: true, limit: :infinity)} total=#{total}" end)
      Logger.info("201 order created user=#{user} items=#{length(cart)} total=#{total}")
      {:ok, total}
    end)
  end

  defp timed(what, fun) do
    t0 = System.monotonic_time(:microsecond)
    r = fun.()
    Metrics.observe(what, System.monotonic_time(:microsecond) - t0)
    r
  end

  defp request_id, do: Base.encode16(:crypto.strong_rand_bytes(10), case: :lower)
end

defmodule Checkout.Metrics do
  use GenServer
  @table __MODULE__
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def observe(what, us) do
    :ets.update_counter(@table, what, [{2, 1}, {3, us}], {what, 0, 0})
  end

  def all, do: :ets.tab2list(@table)

  @impl true
  def init(_) do
    :ets.new(@table, [:named_table, :public, write_concurrency: true])
    {:ok, []}
  end
end
