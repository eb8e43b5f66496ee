defmodule Catalog.Application do
  use Application

  @impl true
  def start(_type, _args) do
    children = [
      Catalog.Store,
      {Task.Supervisor, name: Catalog.Downloads},
      Catalog.Importer,
      {Task.Supervisor, name: Catalog.Web}
    ]

    Supervisor.start_link(children, strategy: :rest_for_one, name: Catalog.Supervisor)
  end
end

defmodule Catalog.Store do
  @moduledoc "Owner of the table of products: sku => {title, cents, supplier}."
  use GenServer
  @table :catalog_products

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def put(sku, title, cents, supplier), do: :ets.insert(@table, {sku, title, cents, supplier})

  def get(sku) do
    case :ets.lookup(@table, sku) do
      [{_, title, cents, supplier}] -> {:ok, %{title: title, cents: cents, supplier: supplier}}
      [] -> :error
    end
  end

  def size, do: :ets.info(@table, :size)

  @impl true
  def init(_) do
    :ets.new(@table, [:named_table, :public, :set, read_concurrency: true])
    {:ok, nil}
  end
end

defmodule Catalog.PriceList do
  @moduledoc """
  Parser of the suppliers' price lists. A list has a line for each article of the supplier, but only the
  few that are listed in our shop ("L" in the first column) are of interest.
  """

  def listed(body), do: body |> :binary.split("\n", [:global]) |> Enum.flat_map(&line/1)

  defp line(<<"L;", sku::binary-size(14), ";", rest::binary>>) do
    [title, cents] = :binary.split(rest, ";")
    [{sku, title, String.to_integer(cents)}]
  end

  defp line(_), do: []
end

defmodule Catalog.Importer do
  @moduledoc "Fetches the next price lists every tick, a few in parallel, each in a task of its own."
  use GenServer
  require Logger
  @tick 500

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  @impl true
  def init(_) do
    send(self(), :tick)
    {:ok, %{next: 0}}
  end

  @impl true
  def handle_info(:tick, %{next: n} = state) do
    # after a start the backlog of the night is taken first
    batch = if n < 1_400, do: 70, else: 9

    Catalog.Downloads
    |> Task.Supervisor.async_stream_nolink(n..(n + batch - 1), &import_list/1, max_concurrency: 4, timeout: 20_000)
    |> Enum.each(fn
      {:ok, _} -> :ok
      {:exit, reason} -> Logger.warning("price list failed: #{inspect(reason)}")
    end)

    Process.send_after(self(), :tick, @tick)
    {:noreply, %{state | next: n + batch}}
  end

  defp import_list(id) do
    body = Catalog.Supplier.fetch(id)

    for {sku, title, cents} <- Catalog.PriceList.listed(body) do
      Catalog.Store.put(sku, title, cents, rem(id, 40))
    end

    :ok
  end
end
