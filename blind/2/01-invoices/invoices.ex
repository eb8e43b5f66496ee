defmodule Invoices.Application do
  use Application

  def start(_type, _args) do
    children = [
      Invoices.Numbers,
      Invoices.Archive,
      Invoices.Rates,
      {Registry, keys: :unique, name: Invoices.Names},
      {DynamicSupervisor, name: Invoices.Tenants, strategy: :one_for_one}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Invoices.Supervisor)
  end
end

# ---- what stands on an invoice

defmodule Invoices.Line do
  defstruct [:sku, :text, :count, :cents]
end

defmodule Invoices.Discount do
  defstruct [:text, :percent]
end

defmodule Invoices.Shipping do
  defstruct [:carrier, :cents]
end

defmodule Invoices.Deposit do
  defstruct [:sku, :cents]
end

defprotocol Invoices.Printable do
  @doc "One printed row of the invoice."
  @fallback_to_any true
  def row(item, currency)
end

defimpl Invoices.Printable, for: Invoices.Line do
  def row(l, cur), do: [l.sku, ?\t, l.text, ?\t, Integer.to_string(l.count), ?\t, Invoices.Money.show(l.count * l.cents, cur)]
end

defimpl Invoices.Printable, for: Invoices.Shipping do
  def row(s, cur), do: ["shipping ", s.carrier, ?\t, Invoices.Money.show(s.cents, cur)]
end

# everything else: field by field
defimpl Invoices.Printable, for: Any do
  def row(item, _cur) do
    item |> Map.from_struct() |> Enum.sort() |> Enum.map(fn {k, v} -> [Atom.to_string(k), ?=, to_string(v), ?\t] end)
  end
end

defmodule Invoices.Money do
  def show(cents, cur), do: [Integer.to_string(div(cents, 100)), ?., String.pad_leading(Integer.to_string(rem(cents, 100)), 2, "0"), ?\s, cur]
end

# ---- the services

defmodule Invoices.Numbers do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def next(tenant), do: GenServer.call(__MODULE__, {:next, tenant}, 30_000)
  def init(_), do: {:ok, %{}}

  def handle_call({:next, tenant}, _from, s) do
    n = Map.get(s, tenant, 1000) + 1
    {:reply, n, Map.put(s, tenant, n)}
  end
end

defmodule Invoices.Archive do
  @moduledoc "Keeps the last invoices of each tenant, for the download page."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def store(tenant, number, body), do: GenServer.cast(__MODULE__, {:store, tenant, number, body})

  def init(_) do
    :ets.new(:invoices_archive, [:named_table, :protected, :set, read_concurrency: true])
    {:ok, %{count: 0}}
  end

  def handle_cast({:store, tenant, number, body}, s) do
    :ets.insert(:invoices_archive, {{tenant, rem(number, 40)}, number, body})
    {:noreply, %{s | count: s.count + 1}}
  end

  def handle_call(:count, _from, s), do: {:reply, s.count, s}
end

defmodule Invoices.Rates do
  @moduledoc "Exchange rates, taken over every two seconds."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:invoices_rates, [:named_table, :protected, read_concurrency: true])
    send(self(), :take)
    {:ok, nil}
  end

  def handle_info(:take, s) do
    for c <- ~w(EUR USD GBP CHF SEK NOK), do: :ets.insert(:invoices_rates, {c, 1 + :rand.uniform()})
    Process.send_after(self(), :take, 2000)
    {:noreply, s}
  end
end

defmodule Invoices.Tenant do
  @moduledoc "One process per tenant: prints the invoices that are due."
  use GenServer, restart: :permanent

  def start_link(id), do: GenServer.start_link(__MODULE__, id, name: {:via, Registry, {Invoices.Names, id}})
  def times(pid), do: GenServer.call(pid, :times, 60_000)

  def init(id) do
    Process.send_after(self(), :due, :rand.uniform(1000))
    {:ok, %{id: id, done: 0, ms: 0}}
  end

  def handle_info(:due, s) do
    t = System.monotonic_time(:millisecond)
    number = Invoices.Numbers.next(s.id)
    body = print(number, order(s.id))
    Invoices.Archive.store(s.id, number, body)
    Process.send_after(self(), :due, 250 + :rand.uniform(300))
    {:noreply, %{s | done: s.done + 1, ms: s.ms + System.monotonic_time(:millisecond) - t}}
  end

  def handle_call(:times, _from, s), do: {:reply, {s.done, s.ms}, %{s | done: 0, ms: 0}}

  defp print(number, items) do
    [{_, rate}] = :ets.lookup(:invoices_rates, "EUR")
    rows = for i <- items, do: [Invoices.Printable.row(i, "EUR"), ?\n]
    IO.iodata_to_binary(["Invoice ", Integer.to_string(number), ?\n, rows, "rate ", Float.to_string(rate), ?\n])
  end

  defp order(id) do
    lines = for n <- 1..12, do: %Invoices.Line{sku: "A-#{id}-#{n}", text: "part #{n}", count: n, cents: 199 * n}
    deposits = for n <- 1..20, do: %Invoices.Deposit{sku: "A-#{id}-#{n}", cents: 25}
    discounts = for n <- 1..10, do: %Invoices.Discount{text: "bulk #{n}", percent: 3}
    lines ++ deposits ++ discounts ++ [%Invoices.Shipping{carrier: "post", cents: 490}]
  end
end

defmodule Invoices.Load do
  def start(n) do
    for i <- 1..n, do: {:ok, _} = DynamicSupervisor.start_child(Invoices.Tenants, {Invoices.Tenant, i})
  end

  @doc "{invoices, ms for one on average} since the last call"
  def times do
    all = for {_, pid, _, _} <- DynamicSupervisor.which_children(Invoices.Tenants), do: Invoices.Tenant.times(pid)
    {d, m} = Enum.reduce(all, {0, 0}, fn {d, m}, {a, b} -> {a + d, b + m} end)
    {d, if(d > 0, do: m / d, else: nil)}
  end
end
