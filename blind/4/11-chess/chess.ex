defmodule Chess.Application do
  use Application
  def start(_, _) do
    children = [
      {Registry, keys: :unique, name: Chess.Names},
      Chess.Ratings,
      Chess.Lobby,
      {DynamicSupervisor, name: Chess.Players, strategy: :one_for_one, max_restarts: 1000},
      Chess.Club
    ]
    Supervisor.start_link(children, strategy: :rest_for_one, name: Chess.Supervisor)
  end
end

defmodule Chess.Ratings do
  use Agent
  def start_link(_), do: Agent.start_link(fn -> %{} end, name: __MODULE__)
  def played(p, d), do: Agent.cast(__MODULE__, &Map.update(&1, p, 1200, fn r -> r + d end))
end

defmodule Chess.Lobby do
  @moduledoc "Who is there. Players say so twice a second; whoever goes is taken off the list."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def here(id), do: GenServer.cast(__MODULE__, {:here, id, self()})
  def count, do: GenServer.call(__MODULE__, :count)

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :protected, read_concurrency: true])
    {:ok, %{left: 0}}
  end

  def handle_cast({:here, id, pid}, s) do
    Process.monitor(pid)
    :ets.insert(__MODULE__, {pid, id, System.monotonic_time(:millisecond)})
    {:noreply, s}
  end

  def handle_call(:count, _, s), do: {:reply, {:ets.info(__MODULE__, :size), s.left}, s}

  def handle_info({:DOWN, _, :process, pid, _}, s) do
    :ets.delete(__MODULE__, pid)
    {:noreply, %{s | left: s.left + 1}}
  end
end

defmodule Chess.Player do
  use GenServer, restart: :temporary
  def start_link(id), do: GenServer.start_link(__MODULE__, id, name: {:via, Registry, {Chess.Names, id}})
  def init(id) do
    Process.send_after(self(), :here, :rand.uniform(1000))
    {:ok, %{id: id, board: for(f <- 1..64, do: {f, rem(f * 7, 13)}), moves: []}}
  end
  def handle_info(:here, s) do
    Chess.Lobby.here(s.id)
    Process.send_after(self(), :here, 500)
    moves = if :rand.uniform(5) == 1, do: Enum.take([:rand.uniform(4096) | s.moves], 40), else: s.moves
    if :rand.uniform(120) == 1, do: Chess.Ratings.played(s.id, :rand.uniform(21) - 11)
    {:noreply, %{s | moves: moves}}
  end
  def handle_cast(:go_home, s), do: {:stop, :normal, s}
end

defmodule Chess.Club do
  @moduledoc "Lets players in and out: some 2500 are there, two come and two go each second"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def init(_) do
    {:ok, _} = :timer.send_interval(500, :door)
    for i <- 1..2500, do: {:ok, _} = DynamicSupervisor.start_child(Chess.Players, {Chess.Player, i})
    {:ok, {1, 2501}}
  end
  def handle_info(:door, {oldest, next}) do
    {:ok, _} = DynamicSupervisor.start_child(Chess.Players, {Chess.Player, next})
    # mostly those go who came last
    gone = if rem(next, 4) == 0, do: oldest, else: next - 1
    case Registry.lookup(Chess.Names, gone) do
      [{pid, _}] -> GenServer.cast(pid, :go_home)
      [] -> :ok
    end
    {:noreply, {if(rem(next, 4) == 0, do: oldest + 1, else: oldest), next + 1}}
  end
end
