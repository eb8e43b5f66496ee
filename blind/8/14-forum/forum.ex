defmodule Forum.Api do
  @moduledoc "Posts come in, are cut into words for the index; readers search."
  def handle(["post", id | text]) do
    words = Forum.Break.words(Enum.join(text, " "), "en")
    Forum.Index.add(String.to_integer(id), words)
    [Integer.to_string(length(words)), " words"]
  end

  def handle(["find", word]) do
    :forum_index |> :ets.lookup(word) |> Enum.take(10) |> Enum.map(fn {_, id} -> [Integer.to_string(id), ?\s] end)
  end

  def handle(_), do: "?"
end

defmodule Forum.Break do
  @moduledoc """
  Word segmentation by rules (a rule: what stands before, what stands after, break or not), made after UAX #29.
  Each locale can have rules of its own.
  """
  @variables %{letter: "[\\p{L}\\p{M}]", digit: "\\p{Nd}", mid: "['’.:]", space: "[\\p{Zs}\\t]", word: "[\\p{L}\\p{M}\\p{Nd}_]"}

  @rules [
    {"^\\r", "^\\n", :no},
    {"[\\r\\n]$", "", :yes},
    {"", "^[\\r\\n]", :yes},
    {"{letter}$", "^{letter}", :no},
    {"{letter}$", "^{mid}{letter}", :no},
    {"{letter}{mid}$", "^{letter}", :no},
    {"{digit}$", "^{digit}", :no},
    {"{letter}$", "^{digit}", :no},
    {"{digit}$", "^{letter}", :no},
    {"{digit}{mid}$", "^{digit}", :no},
    {"{space}$", "^{space}", :no},
    {"{word}$", "^_", :no},
    {"", "", :yes}
  ]

  def words(text, locale), do: words(text, "", locale, [])

  defp words("", "", _, acc), do: Enum.reverse(acc)
  defp words("", last, _, acc), do: Enum.reverse(keep(last, acc))

  defp words(<<c::utf8, rest::binary>>, current, locale, acc) do
    current = current <> <<c::utf8>>
    case next(current, rest, locale) do
      :no -> words(rest, current, locale, acc)
      :yes -> words(rest, "", locale, keep(current, acc))
    end
  end

  defp keep(w, acc), do: if(String.trim(w) == "", do: acc, else: [w | acc])

  def next(before, rest, locale) do
    tail = String.slice(rest, 0, 4)
    Enum.find_value(rules(locale), fn {left, right, answer} ->
      if Regex.match?(left, before) and Regex.match?(right, tail), do: answer
    end)
  end

  defp rules(_locale) do
    for {left, right, answer} <- @rules, do: {regex(left), regex(right), answer}
  end

  defp regex(pattern) do
    @variables
    |> Enum.reduce(pattern, fn {name, class}, p -> String.replace(p, "{#{name}}", class) end)
    |> Regex.compile!("u")
  end
end

defmodule Forum.Index do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def add(id, words), do: GenServer.cast(__MODULE__, {:add, id, words})
  def init(_), do: {:ok, :ets.new(:forum_index, [:named_table, :bag, :protected, read_concurrency: true])}
  def handle_cast({:add, id, words}, t) do
    :ets.insert(t, for(w <- Enum.uniq(words), String.length(w) > 3, do: {w, rem(id, 50)}))
    {:noreply, t}
  end
end
