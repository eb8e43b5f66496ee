defmodule Archive.Application do
  use Application
  def start(_, _) do
    children = [
      Archive.Catalogue,
      Archive.Shelf,
      {Task.Supervisor, name: Archive.Readers},
      Archive.Scanner,
      Archive.ReadingRoom
    ]
    Supervisor.start_link(children, strategy: :one_for_one, name: Archive.Supervisor)
  end
end

defmodule Archive.Catalogue do
  @moduledoc "400000 entries, loaded once, read by everybody"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def get(n), do: :ets.lookup(__MODULE__, rem(n, 400_000))
  def init(_) do
    :ets.new(__MODULE__, [:named_table, :protected, read_concurrency: true])
    for i <- 0..399_999, do: :ets.insert(__MODULE__, {i, "box #{rem(i, 7000)}", rem(i * 7, 91), [i, i + 1]})
    {:ok, nil}
  end
end

defmodule Archive.Shelf do
  @moduledoc "Puts scanned pages away, one after another. They come in batches of one volume."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def init(_) do
    Process.flag(:message_queue_data, :off_heap)
    :ets.new(__MODULE__, [:named_table, :public])
    {:ok, %{pages: 0, volumes: 0, took: []}}
  end
  def handle_cast({:page, volume, n, text}, s) do
    words = text |> :binary.split(" ", [:global]) |> Enum.frequencies()
    :ets.insert(__MODULE__, {{rem(volume, 3), n}, map_size(words), :erlang.crc32(text)})
    {:noreply, %{s | pages: s.pages + 1}}
  end
  def handle_cast({:end, volume, at}, s) do
    took = System.monotonic_time(:millisecond) - at
    {:noreply, %{s | volumes: volume, took: Enum.take([took | s.took], 5)}}
  end
  def handle_call(:state, _, s), do: {:reply, s, s}
end

defmodule Archive.Scanner do
  @moduledoc "A volume of 9000 pages every six seconds; the next one waits until the shelf is done"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def init(_) do
    {:ok, _} = :timer.send_interval(6000, :volume)
    words = for i <- 1..60, do: "word" <> Integer.to_string(rem(i * 13, 37))
    {:ok, {1, Enum.join(words, " ")}}
  end
  def handle_info(:volume, {v, text}) do
    at = System.monotonic_time(:millisecond)
    for n <- 1..9000, do: GenServer.cast(Archive.Shelf, {:page, v, n, text <> Integer.to_string(n)})
    GenServer.cast(Archive.Shelf, {:end, v, at})
    {:noreply, {v + 1, text}}
  end
end

defmodule Archive.ReadingRoom do
  @moduledoc "6000 readers with a long-lived process each that mostly sleeps; now and then one looks something up"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def init(_) do
    for _ <- 1..6000, do: {:ok, _} = Task.Supervisor.start_child(Archive.Readers, Archive.Reader, :sit, [])
    {:ok, nil}
  end
end

defmodule Archive.Reader do
  def sit do
    Process.send_after(self(), :look, 20_000 + :rand.uniform(20_000))
    :erlang.hibernate(__MODULE__, :look, [])
  end
  def look do
    receive do
      :look ->
        _ = for _ <- 1..20, do: Archive.Catalogue.get(:rand.uniform(400_000))
        sit()
    end
  end
end
