# A cache in one GenServer: each request of the shop calls it, and it looks up and prepares one result at a time.
# Healthy: its entries are in an ETS table, and the caller does the work.
defmodule :lab_elixir_cache do
  def start(args), do: :lab.run(__MODULE__, args)

  def establish(context) do
    {:ok, _} = :application.ensure_all_started(:elixir)
    clients = :lab.int(context, :clients, 30, 50)
    entries = :lab.int(context, :entries, 2_000, 6_000)
    lookup_us = :lab.int(context, :lookup_us, 300, 700)
    # In per cent of what one process can do.
    demand_pct = :lab.int(context, :demand_pct, 110, 120)
    names = for name <- :lab.names(context, :caches, 3), do: alias_of(name)
    sick = :lab.pick(context, :which, names)
    units_per_ms = :lab.calibrate()
    served = :lab.counter()

    caches =
      for name <- names do
        {:ok, pid} = LabElixir.Cache.start_link(name: name, entries: entries, units_per_ms: units_per_ms)
        {name, pid}
      end

    ask =
      case :lab.sick(context) do
        true -> fn key -> LabElixir.Cache.fetch(sick, key, lookup_us) end
        false -> fn key -> LabElixir.Cache.read(sick, key, units_per_ms, lookup_us) end
      end

    others = List.delete(names, sick)
    # A client thinks, then calls: all together need demand_pct.
    cycle_us = div(clients * lookup_us * 100, demand_pct)

    for _ <- 1..clients do
      :lab.start(fn -> client(ask, others, entries, cycle_us - lookup_us, lookup_us, served) end)
    end

    :lab.wait_until(:served, fn -> :lab.total(served) > 1000 end)

    %{
      sick: :lab.culprit(context, sick),
      details: %{
        pid: caches[sick],
        caches: {:list, names},
        clients: clients,
        entries: entries,
        lookup_us: lookup_us,
        demand_pct: demand_pct
      }
    }
  end

  # Names as in real programs: Shop.PriceCache.
  defp alias_of(name), do: Module.concat("Shop", Macro.camelize(Atom.to_string(name)))

  defp client(ask, others, entries, think_us, lookup_us, served) do
    :lab.pause(round(2 * think_us / 1000 * :rand.uniform()))
    {:ok, _} = ask.(:rand.uniform(entries))

    if :rand.uniform(20) == 1 do
      {:ok, _} = LabElixir.Cache.fetch(Enum.random(others), :rand.uniform(entries), div(lookup_us, 4))
    end

    :lab.count(served)
    client(ask, others, entries, think_us, lookup_us, served)
  end
end

defmodule LabElixir.Cache do
  use GenServer

  def start_link(options), do: GenServer.start_link(__MODULE__, options, name: options[:name])

  def fetch(cache, key, lookup_us), do: GenServer.call(cache, {:fetch, key, lookup_us}, :infinity)

  def read(cache, key, units_per_ms, lookup_us) do
    [{^key, entry}] = :ets.lookup(cache, key)
    :lab.work(units_per_ms, lookup_us)
    {:ok, entry}
  end

  @impl true
  def init(options) do
    :ets.new(options[:name], [:named_table, read_concurrency: true])
    for key <- 1..options[:entries], do: :ets.insert(options[:name], {key, %{key: key, price: key * 7}})
    {:ok, %{table: options[:name], units_per_ms: options[:units_per_ms]}}
  end

  @impl true
  def handle_call({:fetch, key, lookup_us}, _from, %{table: table, units_per_ms: units_per_ms} = state) do
    {:reply, read(table, key, units_per_ms, lookup_us), state}
  end
end
