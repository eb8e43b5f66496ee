defmodule PageCache.Application do
  use Application

  @impl true
  def start(_type, _args) do
    children = [PageCache.Janitor, {Task.Supervisor, name: PageCache.Requests}]
    Supervisor.start_link(children, strategy: :one_for_one, name: PageCache.Supervisor)
  end
end

defmodule PageCache do
  @moduledoc """
  Rendered pages: at most 90_000 of them (some 440 MB), the oldest go first.
  :page_cache has {key, stamp, page}, :page_cache_age has {{stamp, key}} in order of age.
  """
  @limit 90_000

  def limit, do: @limit

  def fetch(key) do
    case :ets.lookup(:page_cache, key) do
      [{_, _, page}] ->
        :counters.add(counters(), 1, 1)
        page

      [] ->
        :counters.add(counters(), 2, 1)
        page = PageCache.Renderer.render(key)
        put(key, page)
        page
    end
  end

  def put(key, page) do
    stamp = :erlang.unique_integer([:monotonic])
    true = :ets.insert(:page_cache, {key, stamp, page})
    :ets.insert(:page_cache_age, {{stamp, key}})
  end

  def counters, do: :persistent_term.get(PageCache.Counters)
end

defmodule PageCache.Renderer do
  @rows for i <- 1..104, do: "<tr><td class=\"c#{rem(i, 7)}\">Row #{i} of the table, some text in it</td></tr>\n"
  @body IO.iodata_to_binary(@rows)

  def render(key), do: IO.iodata_to_binary(["<html><h1>Page ", Integer.to_string(key), "</h1>", :binary.part(@body, 0, 4_000 + rem(key * 7919, 1_700)), "</html>"])
end

defmodule PageCache.Janitor do
  @moduledoc "Owns the tables; takes the oldest pages out when there are too many."
  use GenServer
  @every 250

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  @impl true
  def init(_) do
    :ets.new(:page_cache, [:named_table, :public, read_concurrency: true, write_concurrency: true])
    :ets.new(:page_cache_age, [:named_table, :public, :ordered_set, write_concurrency: true])
    :persistent_term.put(PageCache.Counters, :counters.new(2, [:write_concurrency]))
    # warm start
    for key <- 1..PageCache.limit(), do: PageCache.put(key, PageCache.Renderer.render(key))
    Process.send_after(self(), :trim, @every)
    {:ok, 0}
  end

  @impl true
  def handle_info(:trim, n) do
    gone = trim(:ets.info(:page_cache, :size) - PageCache.limit(), 0)
    Process.send_after(self(), :trim, @every)
    {:noreply, n + gone}
  end

  defp trim(n, gone) when n <= 0, do: gone

  defp trim(n, gone) do
    case :ets.first(:page_cache_age) do
      :"$end_of_table" ->
        gone

      {stamp, key} = oldest ->
        :ets.delete(:page_cache_age, oldest)
        :ets.match_delete(:page_cache, {key, stamp, :_})
        trim(n - 1, gone + 1)
    end
  end
end
