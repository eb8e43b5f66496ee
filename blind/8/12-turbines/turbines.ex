defmodule Turbines.Api do
  @moduledoc "Control room: state of a turbine, orders to it, the park as a whole."
  def handle(["state", id]), do: inspect(Turbines.Turbine.state(String.to_integer(id)))
  def handle(["pitch", id, deg]), do: Turbines.Turbine.pitch(String.to_integer(id), String.to_integer(deg)) && "ok"
  def handle(["park"]), do: Integer.to_string(:ets.info(:turbines_power, :size))
  def handle(_), do: "?"
end

defmodule Turbines.Turbine do
  @moduledoc "One sensor unit of a turbine (18,000 of them); a new value every minute or so."
  use GenServer
  def start_link(id), do: GenServer.start_link(__MODULE__, id)
  def state(id), do: GenServer.call(pid(id), :state)
  def pitch(id, deg), do: GenServer.call(pid(id), {:pitch, deg})
  defp pid(id), do: :ets.lookup_element(:turbines_units, id, 2)

  def init(id) do
    :ets.insert(:turbines_units, {id, self()})
    Process.put(:calibration, for(i <- 1..25, do: {i, i * id}))
    Process.send_after(self(), :measure, :rand.uniform(60_000))
    {:ok, %{id: id, pitch: 3, wind: 7, power: 1200, log: for(i <- 1..30, do: {i, 1200 + i})}}
  end

  def handle_call(:state, _, s), do: {:reply, Map.take(s, [:pitch, :wind, :power]), s}
  def handle_call({:pitch, d}, _, s), do: {:reply, :ok, %{s | pitch: d}}

  def handle_info(:measure, s) do
    Process.send_after(self(), :measure, 60_000)
    p = s.power + :rand.uniform(11) - 6
    :ets.insert(:turbines_power, {s.id, p})
    send(Turbines.Historian, {:value, s.id, p, [:wind, s.wind, :pitch, s.pitch]})
    {:noreply, %{s | power: p, log: Enum.take([{p, s.wind} | s.log], 30)}}
  end
end

defmodule Turbines.Historian do
  @moduledoc "Takes the values of five seconds out of its mailbox at once and writes them as one block."
  def child_spec(_), do: %{id: __MODULE__, start: {__MODULE__, :start_link, []}}
  def start_link, do: {:ok, spawn_link(fn -> Process.register(self(), __MODULE__); loop() end)}

  defp loop do
    Process.sleep(5000)
    block = take([])
    File.write!(System.fetch_env!("DATA") <> ".history", :erlang.term_to_binary(block))
    loop()
  end

  defp take(acc) do
    receive do
      {:value, _, _, _} = v -> take([v | acc])
    after
      0 -> acc
    end
  end
end

defmodule Turbines.Collector do
  @moduledoc "Metrics for the dashboard: the top processes by memory, queue and work, refreshed all the time."
  use GenServer
  @items [:registered_name, :current_stacktrace, :initial_call, :messages, :dictionary, :memory, :total_heap_size,
          :reductions, :message_queue_len, :links, :monitors, :binary, :garbage_collection_info, :status]

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def init(_), do: {:ok, %{last: %{}, top: []}, {:continue, :collect}}
  def handle_continue(:collect, s), do: collect(s)
  def handle_info(:collect, s), do: collect(s)
  def handle_call(:top, _, s), do: {:reply, s.top, s}

  defp collect(s) do
    rows = for pid <- Process.list(), info = Process.info(pid, @items), do: {pid, Map.new(info)}
    now = Map.new(rows, fn {p, i} -> {p, i.reductions} end)
    work = Enum.map(rows, fn {p, i} -> {p, i.reductions - Map.get(s.last, p, 0), i.memory, length(i.messages), i.dictionary[:"$initial_call"]} end)
    top = for n <- 1..3, do: work |> Enum.sort_by(&elem(&1, n), :desc) |> Enum.take(20)
    Process.send_after(self(), :collect, 300)
    {:noreply, %{last: now, top: top}}
  end
end

defmodule Turbines.Park do
  use Supervisor
  def start_link(_), do: Supervisor.start_link(__MODULE__, [], name: __MODULE__)
  def init(_) do
    :ets.new(:turbines_units, [:named_table, :public, read_concurrency: true])
    :ets.new(:turbines_power, [:named_table, :public, write_concurrency: true])
    Supervisor.init(for(id <- 1..18_000, do: Supervisor.child_spec({Turbines.Turbine, id}, id: id)), strategy: :one_for_one)
  end
end
