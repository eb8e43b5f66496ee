defmodule Tracks do
  use Application
  def start(_, _), do: Tracks.Sup.start_link()
end

defmodule Tracks.Sup do
  use Supervisor
  def start_link, do: Supervisor.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    importers = for n <- 1..3, do: Supervisor.child_spec({Tracks.Import, n}, id: {:import, n})
    searches = for n <- 1..4, do: Supervisor.child_spec({Tracks.Search, n}, id: {:search, n})
    Supervisor.init([Tracks.Store, Tracks.Tags, Tracks.Plays] ++ importers ++ searches, strategy: :one_for_one)
  end
end

defmodule Tracks.Store do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def put(id, track), do: :ets.insert(:tracks, {id, track})
  def get(id), do: :ets.lookup(:tracks, id)
  def delete(id), do: :ets.delete(:tracks, id)

  def init(_) do
    :ets.new(:tracks, [:named_table, :public, :set, read_concurrency: true, write_concurrency: true])
    {:ok, nil}
  end
end

defmodule Tracks.Tags do
  @moduledoc "tag -> track ids; the newest @keep tracks are listed"
  use GenServer
  @keep 24_000
  @styles for a <- ~w(acid deep hard indie latin neo nu post synth trip), b <- ~w(folk funk hop house jazz metal pop punk rock soul wave), do: "#{a}-#{b}"

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def add(id, tags), do: GenServer.call(__MODULE__, {:add, id, tags}, 15_000)
  def by_tag(tag), do: :ets.lookup(:tags, tag)
  def styles, do: @styles

  def init(_) do
    :ets.new(:tags, [:named_table, :protected, :bag, read_concurrency: true])
    # as read from the last snapshot
    q =
      Enum.reduce(1..@keep, :queue.new(), fn id, q ->
        tags = ["streaming", Enum.at(@styles, rem(id * 7, length(@styles)))]
        Tracks.Store.put(id, %{title: "Track #{id}", tags: tags, length: 120 + rem(id, 300)})
        :queue.in({id, tags}, q)
      end)

    rows = for {id, tags} <- :queue.to_list(q), t <- tags, do: {t, id}
    :ets.insert(:tags, rows)
    {:ok, q}
  end

  def handle_call({:add, id, tags}, _from, q) do
    for t <- tags, do: :ets.insert(:tags, {t, id})
    {{:value, {old, old_tags}}, q} = :queue.out(:queue.in({id, tags}, q))
    for t <- old_tags, do: :ets.delete_object(:tags, {t, old})
    Tracks.Store.delete(old)
    {:reply, :ok, q}
  end
end

defmodule Tracks.Import do
  @moduledoc "takes the labels' deliveries in"
  use GenServer
  def start_link(n), do: GenServer.start_link(__MODULE__, n)

  def init(n) do
    Process.send_after(self(), :next, 500)
    {:ok, {n, 1_000_000 * n}}
  end

  def handle_info(:next, {n, id}) do
    styles = Tracks.Tags.styles()
    tags = ["streaming", Enum.random(styles), Enum.random(styles)]
    Tracks.Store.put(id, %{title: "Track #{id}", tags: tags, length: Enum.random(120..400)})
    {us, :ok} = :timer.tc(fn -> Tracks.Tags.add(id, Enum.uniq(tags)) end)
    :ets.insert(:plays, {{:import, n}, id - 1_000_000 * n + 1, us})
    Process.send_after(self(), :next, 4)
    {:noreply, {n, id + 1}}
  end
end

defmodule Tracks.Search do
  use GenServer
  def start_link(n), do: GenServer.start_link(__MODULE__, n)

  def init(n) do
    :timer.send_interval(20, :search)
    {:ok, {n, 0}}
  end

  def handle_info(:search, {n, found}) do
    ids = Tracks.Tags.by_tag(Enum.random(Tracks.Tags.styles()))
    hits = for {_, id} <- Enum.take_random(ids, 10), [{_, t}] <- [Tracks.Store.get(id)], t.length > 200, do: t.title
    {:noreply, {n, found + length(hits)}}
  end
end

defmodule Tracks.Plays do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    :ets.new(:plays, [:named_table, :public, :set])
    :timer.send_interval(1000, :roll)
    {:ok, 0}
  end

  def handle_info(:roll, n), do: {:noreply, n + 1}
end
