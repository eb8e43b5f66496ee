defmodule Recipes.Api do
  @moduledoc "Cooking book: a page of one recipe, or a search in the titles."
  def handle(["page", id]) do
    id = String.to_integer(id)
    recipe = Recipes.Cache.get(id) || Recipes.Store.load_and_cache(id)
    page(recipe)
  end

  def handle(["search", word]) do
    hits = for {id, title} <- :ets.tab2list(:recipes_titles), String.contains?(title, word), do: Integer.to_string(id)
    Enum.intersperse(Enum.take(hits, 20), ?\s)
  end

  def handle(_), do: "?"

  defp page(r) do
    [r.title, " for ", Integer.to_string(r.persons), ": " | Enum.map(Enum.take(r.ingredients, 12), fn {n, g} -> [n, ?\s, Integer.to_string(g), ?g, ?\s] end)]
  end
end

defmodule Recipes.Store do
  @moduledoc "The recipes themselves (made up here from the id); slow, so they are cached."
  def load_and_cache(id) do
    Process.sleep(15)
    recipe = make(id)
    Recipes.Cache.put(id, recipe)
    recipe
  end

  defp make(id) do
    n = 900 + rem(id * 37, 400)
    %{id: id, title: "recipe #{id}", persons: 2 + rem(id, 6),
      ingredients: for(i <- 1..n, do: {"ingredient #{i}", i * 5}),
      steps: for(i <- 1..n, do: %{nr: i, text: "step #{i}", minutes: rem(i * 7, 45), tools: [:pan, :knife, i], after: [i - 1, i - 2]}),
      comments: for(i <- 1..n, do: {:comment, "user #{i}", i, [stars: rem(i, 5), at: {2026, 1 + rem(i, 12), 1 + rem(i, 28)}]})}
  end
end

defmodule Recipes.Cache do
  @moduledoc """
  Segmented cache: new entries go into the head segment; every few seconds the oldest segment is dropped and a new
  head is made. An entry that is read moves to the head, so what is in use survives.
  """
  use GenServer
  @segments 6
  @period 3000

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def get(key), do: GenServer.call(__MODULE__, {:get, key}, 60_000)
  def put(key, value), do: GenServer.cast(__MODULE__, {:put, key, value})

  def init(_) do
    :timer.send_interval(@period, :rotate)
    {:ok, for(_ <- 1..@segments, do: segment())}
  end

  def handle_call({:get, key}, _from, [head | older] = segments) do
    case :ets.lookup(head, key) do
      [{_, v}] -> {:reply, v, segments}
      [] -> {:reply, older(key, older, head), segments}
    end
  end

  def handle_cast({:put, key, value}, [head | _] = segments) do
    :ets.insert(head, {key, value})
    {:noreply, segments}
  end

  def handle_info(:rotate, segments) do
    {keep, [old]} = Enum.split(segments, @segments - 1)
    :ets.delete(old)
    {:noreply, [segment() | keep]}
  end

  defp older(_, [], _), do: nil

  defp older(key, [s | rest], head) do
    case :ets.lookup(s, key) do
      [{_, v} = row] ->
        :ets.insert(head, row)
        :ets.delete(s, key)
        v
      [] -> older(key, rest, head)
    end
  end

  defp segment, do: :ets.new(:recipes_segment, [:set, :protected, read_concurrency: true])
end

defmodule Recipes.Titles do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def init(_) do
    :ets.new(:recipes_titles, [:named_table, :protected, read_concurrency: true])
    for i <- 1..500, do: :ets.insert(:recipes_titles, {i, "recipe #{i} with #{Enum.at(~w(leek rice beans apple), rem(i, 4))}"})
    {:ok, nil}
  end
end
