defmodule Hall.Application do
  @moduledoc "Ticket hall. Each visitor who opens an event page gets a session process."
  use Application

  @impl true
  def start(_type, _args) do
    children = [
      {Registry, keys: :unique, name: Hall.SessionRegistry},
      Hall.Stats,
      Hall.Prices,
      Hall.SessionSupervisor,
      {Task.Supervisor, name: Hall.TaskSupervisor}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Hall.Supervisor)
  end
end

defmodule Hall.Inventory do
  @moduledoc "Client of the venue's inventory service (line protocol over TCP)."
  @timeout 5_000

  def layout(event_id) do
    port = String.to_integer(System.fetch_env!("INVENTORY_PORT"))
    opts = [:binary, packet: :line, active: false, buffer: 65_536]
    {:ok, socket} = :gen_tcp.connect({127, 0, 0, 1}, port, opts, @timeout)
    :ok = :gen_tcp.send(socket, "LAYOUT #{event_id}\n")
    {:ok, line} = :gen_tcp.recv(socket, 0, @timeout)
    :gen_tcp.close(socket)

    line
    |> String.trim()
    |> String.split(",")
    |> Map.new(fn seat -> {seat, :free} end)
  end
end

defmodule Hall.Session do
  use GenServer, restart: :temporary

  def start_link({id, event_id}), do: GenServer.start_link(__MODULE__, {id, event_id}, name: via(id))
  def view(id), do: GenServer.call(via(id), :view)
  def hold(id, seat), do: GenServer.call(via(id), {:hold, seat})
  def close(id), do: GenServer.cast(via(id), :close)
  defp via(id), do: {:via, Registry, {Hall.SessionRegistry, id}}

  @impl true
  def init({id, event_id}) do
    seats = Hall.Inventory.layout(event_id)
    Hall.Stats.incr(:sessions)
    {:ok, %{id: id, event: event_id, seats: seats, held: []}, 60_000}
  end

  @impl true
  def handle_call(:view, _from, state) do
    free = for {seat, :free} <- state.seats, do: seat
    {:reply, {length(free), Hall.Prices.quote(state.event)}, state, 60_000}
  end

  def handle_call({:hold, seat}, _from, state) do
    seats = Map.replace(state.seats, seat, {:held, state.id})
    Hall.Stats.incr(:holds)
    {:reply, :ok, %{state | seats: seats, held: [seat | state.held]}, 60_000}
  end

  @impl true
  def handle_cast(:close, state), do: {:stop, :normal, state}

  @impl true
  def handle_info(:timeout, state), do: {:stop, :normal, state}
end

defmodule Hall.SessionSupervisor do
  use DynamicSupervisor

  def start_link(arg), do: DynamicSupervisor.start_link(__MODULE__, arg, name: __MODULE__)

  def open(id, event_id), do: DynamicSupervisor.start_child(__MODULE__, {Hall.Session, {id, event_id}})

  @impl true
  def init(_), do: DynamicSupervisor.init(strategy: :one_for_one, max_restarts: 50)
end

defmodule Hall.Prices do
  @moduledoc "Price table, refreshed in the background."
  use GenServer
  @table __MODULE__

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def quote(event_id) do
    [{_, cents}] = :ets.lookup(@table, rem(event_id, 400))
    cents
  end

  @impl true
  def init(_) do
    :ets.new(@table, [:named_table, :set, :protected, read_concurrency: true])
    refresh()
    {:ok, nil}
  end

  @impl true
  def handle_info(:refresh, s) do
    refresh()
    {:noreply, s}
  end

  defp refresh do
    for e <- 0..399, do: :ets.insert(@table, {e, 2_000 + rem(e * 37 + System.os_time(:second), 4_000)})
    Process.send_after(self(), :refresh, 2_000)
  end
end

defmodule Hall.Stats do
  use GenServer
  @table __MODULE__
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def incr(key, by \\ 1), do: :ets.update_counter(@table, key, by, {key, 0})
  def all, do: :ets.tab2list(@table)

  @impl true
  def init(_) do
    :ets.new(@table, [:named_table, :set, :public, write_concurrency: true])
    {:ok, nil}
  end
end
