defmodule Berths.Api do
  @moduledoc "Cranes ask for the berths of a plan, work, and give them back."
  def handle(["plan" | berths]) do
    ids = Enum.map(berths, &String.to_integer/1)
    done = for id <- ids, Berths.Locks.lock(id) == :ok do
      boxes = Berths.Yard.move(id)
      :ok = Berths.Locks.unlock(id)
      boxes
    end
    [Integer.to_string(Enum.sum(done)), " boxes"]
  end

  def handle(["yard"]), do: Integer.to_string(Berths.Yard.total())
  def handle(_), do: "?"
end

defmodule Berths.Locks do
  @moduledoc "Who works at which berth. If a crane's process dies, its berths become free again."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def lock(id), do: GenServer.call(__MODULE__, {:lock, id, self()})
  def unlock(id), do: GenServer.call(__MODULE__, {:unlock, id, self()})

  def init(_), do: {:ok, %{}}

  def handle_call({:lock, id, pid}, _from, held) do
    case held do
      %{^id => _} -> {:reply, :busy, held}
      _ ->
        Process.monitor(pid)
        {:reply, :ok, Map.put(held, id, pid)}
    end
  end

  def handle_call({:unlock, id, pid}, _from, held) do
    case held do
      %{^id => ^pid} -> {:reply, :ok, Map.delete(held, id)}
      _ -> {:reply, :not_yours, held}
    end
  end

  def handle_info({:DOWN, _ref, :process, pid, _}, held) do
    {:noreply, Map.reject(held, fn {_, p} -> p == pid end)}
  end
end

defmodule Berths.Yard do
  @moduledoc "Counts boxes per berth."
  use Agent
  def start_link(_), do: Agent.start_link(fn -> :ets.new(:berths_yard, [:named_table, :public, write_concurrency: true]) end, name: __MODULE__)
  def move(id) do
    n = 1 + rem(id, 7)
    :ets.update_counter(:berths_yard, id, {2, n}, {id, 0})
    n
  end
  def total, do: :ets.foldl(fn {_, n}, s -> n + s end, 0, :berths_yard)
end
