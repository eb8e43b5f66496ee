defmodule Gallery.Application do
  use Application

  def start(_type, _args) do
    children = [
      Gallery.Stats,
      {Registry, keys: :unique, name: Gallery.Viewers},
      {Task.Supervisor, name: Gallery.Tasks},
      Gallery.Catalog,
      {DynamicSupervisor, name: Gallery.ViewerSup, strategy: :one_for_one},
      {Task, fn -> for i <- 1..16, do: DynamicSupervisor.start_child(Gallery.ViewerSup, {Gallery.Viewer, i}) end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Gallery.Supervisor)
  end
end

defmodule Gallery.Stats do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def bump(k), do: :ets.update_counter(__MODULE__, k, 1, {k, 0})
  def init(_), do: {:ok, :ets.new(__MODULE__, [:named_table, :public, write_concurrency: true])}
end

defmodule Gallery.Catalog do
  @moduledoc "Knows all pictures; has previews made in the background"
  use GenServer

  defstruct pictures: %{}, settings: %{size: 240, quality: 80}, requested: 0

  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def title(id), do: GenServer.call(__MODULE__, {:title, id})
  def preview(id, to), do: GenServer.cast(__MODULE__, {:preview, id, to})

  def init(_) do
    pictures =
      for i <- 1..28_000, into: %{} do
        {i, %{id: i, title: "Picture #{i}", tags: [:colour, :outdoor, :"y#{rem(i, 30)}"], at: {2020 + rem(i, 6), rem(i, 12) + 1}, place: {rem(i, 90) * 1.5, rem(i, 180) * 0.5}, owner: rem(i, 500)}}
      end

    {:ok, %__MODULE__{pictures: pictures}}
  end

  def handle_call({:title, id}, _from, state), do: {:reply, state.pictures[id].title, state}

  def handle_cast({:preview, id, to}, state) do
    Task.Supervisor.start_child(Gallery.Tasks, fn ->
      send(to, {:preview, id, Gallery.Preview.render(state.pictures[id], state.settings)})
    end)

    {:noreply, %{state | requested: state.requested + 1}}
  end
end

defmodule Gallery.Preview do
  def render(picture, settings) do
    Process.sleep(30)
    Gallery.Stats.bump(:rendered)
    :crypto.hash(:sha256, :erlang.term_to_binary({picture, settings}))
  end
end

defmodule Gallery.Viewer do
  use GenServer
  def start_link(i), do: GenServer.start_link(__MODULE__, i, name: {:via, Registry, {Gallery.Viewers, i}})

  def init(i) do
    Process.send_after(self(), :next, 1000 + i * 20)
    {:ok, %{id: i, seen: 0, last: nil}}
  end

  def handle_info(:next, s) do
    Process.send_after(self(), :next, 1500 + :rand.uniform(1500))
    id = :rand.uniform(28_000)
    _ = Gallery.Catalog.title(id)
    Gallery.Catalog.preview(id, self())
    Gallery.Stats.bump(:asked)
    {:noreply, s}
  end

  def handle_info({:preview, _id, p}, s), do: {:noreply, %{s | seen: s.seen + 1, last: p}}
end
