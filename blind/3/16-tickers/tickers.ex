defmodule Tickers.Application do
  use Application

  def start(_type, _args) do
    children = [
      {Registry, keys: :unique, name: Tickers.Names},
      {Registry, keys: :duplicate, name: Tickers.Screens},
      Tickers.Prices,
      {DynamicSupervisor, name: Tickers.Feeds, strategy: :one_for_one},
      {DynamicSupervisor, name: Tickers.ScreenSup, strategy: :one_for_one},
      {Task, &start_all/0}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Tickers.Supervisor)
  end

  defp start_all do
    for i <- 1..40, do: DynamicSupervisor.start_child(Tickers.Feeds, {Tickers.Feed, i})
    for i <- 1..150, do: DynamicSupervisor.start_child(Tickers.ScreenSup, {Tickers.Screen, i})
  end
end

defmodule Tickers.Prices do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def get(share), do: :ets.lookup_element(__MODULE__, share, 2)

  def init(_) do
    t = :ets.new(__MODULE__, [:named_table, read_concurrency: true])
    for i <- 1..40, do: :ets.insert(t, {i, 10_000})
    Process.send_after(self(), :market, 500)
    {:ok, t}
  end

  def handle_info(:market, t) do
    Process.send_after(self(), :market, 500)
    for i <- 1..40, do: :ets.update_counter(t, i, :rand.uniform(21) - 11)
    {:noreply, t}
  end
end

defmodule Tickers.Feed do
  @moduledoc "Polls the price of one share once a second and keeps its moving average"
  use GenServer
  @every 1000

  def start_link(i), do: GenServer.start_link(__MODULE__, i, name: via(i))
  def via(i), do: {:via, Registry, {Tickers.Names, i}}
  def subscribe(i), do: GenServer.call(via(i), :subscribe)

  def init(i) do
    schedule()
    {:ok, %{share: i, last: [], average: 0.0}}
  end

  # a new screen wants its first price soon
  def handle_call(:subscribe, _from, s) do
    Process.send_after(self(), :poll, 50)
    {:reply, s.average, s}
  end

  def handle_info(:poll, s) do
    schedule()
    last = Enum.take([Tickers.Prices.get(s.share) | s.last], 60)
    average = Enum.sum(last) / length(last)
    if average != s.average, do: Registry.dispatch(Tickers.Screens, s.share, fn es -> for {pid, _} <- es, do: send(pid, {:price, s.share, average}) end)
    {:noreply, %{s | last: last, average: average}}
  end

  defp schedule, do: Process.send_after(self(), :poll, @every)
end

defmodule Tickers.Screen do
  @moduledoc "A screen shows a share for some seconds, then another one"
  use GenServer
  def start_link(i), do: GenServer.start_link(__MODULE__, i)

  def init(i) do
    Process.send_after(self(), :change, 500 + i * 10)
    {:ok, %{share: nil, shown: 0}}
  end

  def handle_info(:change, s) do
    Process.send_after(self(), :change, 2500 + :rand.uniform(2500))
    if s.share, do: Registry.unregister(Tickers.Screens, s.share)
    share = :rand.uniform(40)
    {:ok, _} = Registry.register(Tickers.Screens, share, nil)
    _ = Tickers.Feed.subscribe(share)
    {:noreply, %{s | share: share}}
  end

  def handle_info({:price, _, _}, s), do: {:noreply, %{s | shown: s.shown + 1}}
end
