defmodule Symbols.Application do
  use Application

  def start(_type, _args) do
    # the master data come once a day; the node is started anew then
    Symbols.Master.load()

    children = [
      Symbols.Quotes,
      Symbols.Index,
      {Registry, keys: :duplicate, name: Symbols.Watchers, partitions: 2},
      {DynamicSupervisor, name: Symbols.Sessions, strategy: :one_for_one}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Symbols.Supervisor)
  end
end

defmodule Symbols.Master do
  @moduledoc "610000 instruments. Their names are atoms (compared all the time); the list is closed: unknown names are refused."
  @count 610_000

  def load do
    names = for i <- 1..@count, do: :"ISIN_#{Integer.to_string(i * 7919, 36)}"
    table = for {n, i} <- Enum.with_index(names, 1), into: %{}, do: {n, {i, rem(i, 40), rem(i * 37, 100_000)}}
    :persistent_term.put({Symbols, :by_name}, table)
    :persistent_term.put({Symbols, :by_number}, List.to_tuple(names))
    for i <- 1..60, do: :persistent_term.put({Symbols, :calendar, i}, Enum.to_list(1..2000))
  end

  def name(i), do: elem(:persistent_term.get({Symbols, :by_number}), i - 1)
  def count, do: @count

  def lookup(string) do
    name = String.to_existing_atom(string)
    Map.fetch(:persistent_term.get({Symbols, :by_name}), name)
  rescue
    ArgumentError -> :error
  end
end

defmodule Symbols.Quotes do
  @moduledoc "Takes the prices in: four packets a second. The mailbox fills for a moment with each packet, as it should."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:symbols_quotes, [:named_table, :protected, :set, read_concurrency: true])
    for i <- 1..Symbols.Master.count(), do: :ets.insert(:symbols_quotes, {i, 100, 0})
    {:ok, 0}
  end

  def handle_info({:quote, i, price}, n) do
    :ets.insert(:symbols_quotes, {i, price, n})
    if rem(n, 50) == 0, do: Registry.dispatch(Symbols.Watchers, i, fn l -> for {p, _} <- l, do: send(p, {:price, i, price}) end)
    {:noreply, n + 1}
  end

  def handle_call(:count, _from, n), do: {:reply, n, n}
end

defmodule Symbols.Index do
  @moduledoc "A search tree on the heap of one process; big and at rest."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def search(prefix), do: GenServer.call(__MODULE__, {:search, prefix})

  def init(_) do
    pairs = for i <- 1..120_000, do: {{rem(i, 997), i}, {:instrument, i, rem(i, 40)}}
    {:ok, :gb_trees.from_orddict(Enum.sort(pairs)), {:continue, :rest}}
  end

  def handle_continue(:rest, tree) do
    :erlang.garbage_collect()
    {:noreply, tree}
  end

  def handle_call({:search, p}, _from, tree) do
    it = :gb_trees.iterator_from({rem(p, 997), 0}, tree)
    {:reply, take(it, 5, []), tree}
  end

  defp take(_, 0, acc), do: acc

  defp take(it, n, acc) do
    case :gb_trees.next(it) do
      {k, v, it} -> take(it, n - 1, [{k, v} | acc])
      :none -> acc
    end
  end
end

defmodule Symbols.Session do
  @moduledoc "One per user that is signed in: 25000. Most sleep."
  use GenServer, restart: :temporary

  def start_link(i), do: GenServer.start_link(__MODULE__, i)

  def init(i) do
    if rem(i, 5) == 0, do: Registry.register(Symbols.Watchers, rem(i, 2000) + 1, nil)
    Process.send_after(self(), :look, 4000 + :rand.uniform(90_000))
    {:ok, %{i: i, looked: 0}, :hibernate}
  end

  def handle_info(:look, s) do
    n = :rand.uniform(Symbols.Master.count())
    {:ok, {^n, _, _}} = Symbols.Master.lookup(Atom.to_string(Symbols.Master.name(n)))
    :error = Symbols.Master.lookup("no such thing #{rem(n, 100)}")
    [_] = :ets.lookup(:symbols_quotes, n)
    if rem(n, 4) == 0, do: Symbols.Index.search(n)
    Process.send_after(self(), :look, 40_000 + :rand.uniform(60_000))
    {:noreply, %{s | looked: s.looked + 1}, :hibernate}
  end

  def handle_info({:price, _, _}, s), do: {:noreply, s, :hibernate}
end

defmodule Symbols.Load do
  def start(n) do
    for i <- 1..n, do: {:ok, _} = DynamicSupervisor.start_child(Symbols.Sessions, {Symbols.Session, i})
    spawn(fn -> packets() end)
  end

  defp packets do
    for _ <- 1..4000, do: send(Symbols.Quotes, {:quote, :rand.uniform(Symbols.Master.count()), :rand.uniform(9999)})
    Process.sleep(250)
    packets()
  end
end
