# Directories of an Elixir program that start a process for a key, unless there is one, and repeatedly send all that
# they know to a neighbour. Pollers request keys that were started long ago. One directory records each such attempt
# and never deletes it: its state grows, and scanning and sending it takes longer and longer. Healthy: an attempt that
# started nothing leaves no entry.
defmodule :lab_elixir_tombstones do
  # At this number of entries no more are recorded.
  @max_entries 80_000

  def start(args), do: :lab.run(__MODULE__, args)

  def establish(context) do
    {:ok, _} = :application.ensure_all_started(:elixir)
    keys = :lab.int(context, :keys, 300, 600)
    pollers = :lab.int(context, :pollers, 20, 30)
    # Per poller.
    attempts_per_s = :lab.int(context, :attempts_per_s, 8, 12)
    earlier = 1_000 * :lab.int(context, :earlier_thousand_attempts, 45, 60)
    sync_ms = :lab.int(context, :sync_ms, 10, 20)
    sick = :lab.sick(context)
    names = for name <- :lab.names(context, :directories, 3), do: Module.concat("Shop", Macro.camelize(Atom.to_string(name)))
    which = :lab.pick(context, :which, names)

    started =
      for name <- names do
        {:ok, neighbour} = LabElixir.Neighbour.start_link(name: Module.concat(name, "Neighbour"))
        remembers = sick and name == which
        {:ok, pid} = LabElixir.Directory.start_link(name: name, neighbour: neighbour, sync_ms: sync_ms, remembers: remembers)
        for key <- 1..keys, do: {:ok, _} = LabElixir.Directory.ensure(name, key)
        {name, {pid, neighbour}}
      end

    {pid, neighbour} = Map.new(started)[which]
    # The attempts of several hours.
    LabElixir.Directory.earlier(which, keys, earlier)
    attempts = :lab.counter()
    for _ <- 1..pollers, do: poller(which, keys, attempts_per_s, attempts)
    for name <- names, name != which, do: poller(name, keys, attempts_per_s, :lab.counter())

    :lab.wait_until(:attempts, fn -> :lab.total(attempts) > 5 * pollers end)

    :lab.wait_until(:synced, fn ->
      entries = LabElixir.Neighbour.count(neighbour)
      if sick, do: entries >= earlier, else: entries == keys
    end)

    %{
      sick: :lab.culprit(context, which),
      details: %{
        pid: pid,
        neighbour: neighbour,
        directories: {:list, names},
        keys: keys,
        pollers: pollers,
        attempts_per_s: pollers * attempts_per_s,
        earlier_attempts: earlier,
        sync_ms: sync_ms
      }
    }
  end

  # Repeatedly ensures that all keys have a worker, whichever process started it.
  defp poller(directory, keys, per_s, attempts) do
    :lab.start(fn ->
      :lab.pause(:rand.uniform(1_000))

      :lab.at_rate(per_s, fn due ->
        for _ <- 1..due do
          {:error, {:already_started, _}} = LabElixir.Directory.ensure(directory, :rand.uniform(keys), @max_entries)
          :lab.count(attempts)
        end
      end)
    end)
  end
end

defmodule LabElixir.Directory do
  use GenServer

  def start_link(options), do: GenServer.start_link(__MODULE__, options, name: options[:name])

  # At this number of entries attempts are no longer recorded.
  def ensure(directory, key, max_entries \\ :infinity), do: GenServer.call(directory, {:ensure, key, max_entries}, :infinity)

  # Records attempts for keys that have a worker.
  def earlier(directory, keys, attempts), do: GenServer.call(directory, {:earlier, keys, attempts}, :infinity)

  @impl true
  def init(options) do
    Process.send_after(self(), :sync, options[:sync_ms])
    state = Map.new(options) |> Map.take([:neighbour, :sync_ms, :remembers])
    {:ok, Map.merge(state, %{entries: %{}, started: %{}, pending: nil})}
  end

  @impl true
  def handle_call({:ensure, key, max_entries}, _from, %{started: started} = state) do
    case started do
      %{^key => worker} ->
        {:reply, {:error, {:already_started, worker}}, attempted(state, key, worker, max_entries)}

      %{} ->
        worker = :lab.start(fn -> :lab.forever(fn -> :lab.pause(60_000) end) end)
        {:reply, {:ok, worker}, recorded(%{state | started: Map.put(started, key, worker)}, key, worker, :started)}
    end
  end

  def handle_call({:earlier, keys, attempts}, _from, state) do
    state =
      Enum.reduce(1..attempts, state, fn attempt, state ->
        key = rem(attempt, keys) + 1
        attempted(state, key, state.started[key], :infinity)
      end)

    {:reply, :ok, state}
  end

  # Sends all entries to the neighbour, with a checksum, unless it has not acknowledged the last ones yet.
  @impl true
  def handle_info(:sync, %{pending: nil} = state) do
    checksum = state.entries |> Enum.sort() |> Enum.reduce(0, fn entry, sum -> digest({sum, entry}) end)
    send(state.neighbour, {:entries, self(), checksum, state.entries})
    Process.send_after(self(), :sync, state.sync_ms)
    {:noreply, %{state | pending: checksum}}
  end

  def handle_info(:sync, state) do
    Process.send_after(self(), :sync, state.sync_ms)
    {:noreply, state}
  end

  def handle_info({:acknowledged, checksum}, %{pending: checksum} = state), do: {:noreply, %{state | pending: nil}}

  # The same on all nodes and releases.
  defp digest(entry) do
    <<digest::32, _::binary>> = :erlang.md5(:erlang.term_to_binary(entry))
    digest
  end

  # An attempt that started nothing.
  defp attempted(%{remembers: false} = state, _, _, _), do: state
  defp attempted(%{entries: entries} = state, _, _, max_entries) when map_size(entries) >= max_entries, do: state
  defp attempted(state, key, worker, _), do: recorded(state, key, worker, :refused)

  defp recorded(%{entries: entries} = state, key, worker, outcome) do
    entry = %{key: key, worker: worker, outcome: outcome, at_ms: System.monotonic_time(:millisecond), start: [key, :transient]}

    %{state | entries: Map.put(entries, :erlang.unique_integer(), entry)}
  end
end

defmodule LabElixir.Neighbour do
  use GenServer

  def start_link(options), do: GenServer.start_link(__MODULE__, nil, name: options[:name])

  def count(neighbour), do: GenServer.call(neighbour, :count, :infinity)

  @impl true
  def init(nil), do: {:ok, %{checksum: nil, entries: %{}, new: 0}}

  @impl true
  def handle_call(:count, _from, state), do: {:reply, map_size(state.entries), state}

  # Counts the entries that are new to it.
  @impl true
  def handle_info({:entries, from, checksum, entries}, state) do
    send(from, {:acknowledged, checksum})

    if checksum == state.checksum do
      {:noreply, state}
    else
      new = Enum.count(entries, fn {id, _} -> not is_map_key(state.entries, id) end)
      {:noreply, %{checksum: checksum, entries: entries, new: state.new + new}}
    end
  end
end
