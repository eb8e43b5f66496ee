defmodule Chess.Api do
  @moduledoc "Correspondence chess: 15,000 games stand for days, blitz games come and go."
  def handle(["move", id, m]) do
    case Registry.lookup(Chess.Games, String.to_integer(id)) do
      [{pid, _}] -> GenServer.call(pid, {:move, m})
      [] -> "no game"
    end
  end

  def handle(["blitz", id]) do
    {:ok, pid} = DynamicSupervisor.start_child(Chess.BlitzSupervisor, {Chess.Blitz, id})
    ref = Process.monitor(pid)
    receive do
      {:DOWN, ^ref, _, _, _} -> "over"
    after
      5000 -> "long"
    end
  end

  def handle(["opening", n]) do
    [{_, name, moves}] = :ets.lookup(:chess_openings, String.to_integer(n))
    [name, ?\s | Enum.take(moves, 4)]
  end

  def handle(_), do: "?"
end

defmodule Chess.Game do
  @moduledoc "A game by correspondence: sleeps (hibernates) nearly always, has a clock of days."
  use GenServer
  def start_link(id), do: GenServer.start_link(__MODULE__, id, name: {:via, Registry, {Chess.Games, id}})
  def init(id) do
    Process.send_after(self(), :flag, 3 * 24 * 3600 * 1000)
    {:ok, %{id: id, moves: for(i <- 1..rem(id, 60)//1, do: "m#{i}")}, :hibernate}
  end
  def handle_call({:move, m}, _, s), do: {:reply, Integer.to_string(length(s.moves)), %{s | moves: Enum.take([m | s.moves], 80)}, :hibernate}
  def handle_info(:flag, s), do: {:stop, :normal, s}
end

defmodule Chess.Blitz do
  @moduledoc "A blitz game against the machine: some work, then it is over. Cheaters are thrown out with an error."
  use GenServer, restart: :temporary
  def start_link(id), do: GenServer.start_link(__MODULE__, id)
  def init(id), do: {:ok, {id, 8}, {:continue, :think}}
  def handle_continue(:think, {id, 0}), do: {:stop, if(:erlang.phash2({id, 1}, 600) == 0, do: {:shutdown, :cheater}, else: :normal), {id, 0}}
  def handle_continue(:think, {id, n}) do
    _ = Enum.reduce(1..1500, n, fn i, a -> :erlang.phash2({i, a}) end)
    {:noreply, {id, n - 1}, {:continue, :think}}
  end
end

defmodule Chess.Openings do
  @moduledoc "The book of openings: large, read by all, never changed."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def init(_) do
    :ets.new(:chess_openings, [:named_table, :protected, read_concurrency: true])
    for i <- 1..60_000, do: :ets.insert(:chess_openings, {i, "opening #{i}", for(j <- 1..60, do: "m#{rem(i * j, 97)} ")})
    {:ok, nil}
  end
end

defmodule Chess.Hall do
  @moduledoc "Brings the games back after a start."
  use Task
  def start_link(_), do: Task.start_link(fn -> for id <- 1..15_000, do: {:ok, _} = DynamicSupervisor.start_child(Chess.GameSupervisor, {Chess.Game, id}) end)
end
