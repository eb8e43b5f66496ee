defmodule Ferries.Application do
  use Application
  def start(_, _) do
    children = [
      {Task.Supervisor, name: Ferries.Tasks},
      Ferries.Fares,
      Ferries.Timetable,
      Ferries.Tides,
      {DynamicSupervisor, name: Ferries.Counters, strategy: :one_for_one},
      Ferries.Listener
    ]
    Supervisor.start_link(children, strategy: :one_for_one, name: Ferries.Supervisor)
  end
end

defmodule Ferries.Fares do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def fare(n) do
    case :ets.lookup(__MODULE__, rem(n, 2000)) do
      [{_, f}] -> f
      [] -> 0
    end
  end
  def init(_) do
    :ets.new(__MODULE__, [:named_table, read_concurrency: true])
    for i <- 0..1999, do: :ets.insert(__MODULE__, {i, 500 + i})
    {:ok, nil}
  end
end

defmodule Ferries.Tides do
  @moduledoc "Water levels of 40 harbours, once a second"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def init(_) do
    :timer.send_interval(1000, :measure)
    {:ok, %{}}
  end
  def handle_info(:measure, levels) do
    {:noreply, Map.new(1..40, fn h -> {h, Map.get(levels, h, 0) + :rand.normal()} end)}
  end
end

defmodule Ferries.Timetable do
  @moduledoc "All sailings of the season, and who has booked"
  use GenServer
  defstruct sailings: %{}, operators: %{}, booked: 0

  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def next(n), do: GenServer.call(__MODULE__, {:next, n}, 15_000)
  def book(n), do: GenServer.call(__MODULE__, {:book, n}, 15_000)

  def init(_), do: {:ok, nil, {:continue, :load}}

  def handle_continue(:load, _) do
    sailings =
      for i <- 1..30_000, into: %{} do
        {i, %{from: "harbour " <> Integer.to_string(rem(i, 40)), to: "harbour " <> Integer.to_string(rem(i * 7, 40)),
              ship: "MS " <> Integer.to_string(rem(i, 90)), at: {2026, rem(i, 12) + 1, rem(i, 28) + 1, rem(i, 24)},
              places: [cars: 100 + rem(i, 50), bikes: 40, people: 600 + i], notes: [i, i + 1, i + 2, "deck " <> Integer.to_string(i)]}}
      end
    operators = for o <- 0..9, into: %{}, do: {o, "operator-#{o}.example"}
    {:noreply, %__MODULE__{sailings: sailings, operators: operators}}
  end

  def handle_call({:next, n}, _, state), do: {:reply, Map.get(state.sailings, n), state}

  def handle_call({:book, n}, _, state) do
    {:ok, _} =
      Task.Supervisor.start_child(Ferries.Tasks, fn -> Ferries.Operator.notify(state.operators[rem(n, 10)], n) end)
    {:reply, :ok, %{state | booked: state.booked + 1}}
  end
end

defmodule Ferries.Operator do
  def notify(host, n) do
    # the operators' interface takes its time
    Process.sleep(200 + :rand.uniform(200))
    byte_size(host) + n
  end
end

defmodule Ferries.Listener do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def init(_) do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, backlog: 512, nodelay: true])
    {:ok, port} = :inet.port(l)
    File.write!(System.get_env("PORT_FILE"), Integer.to_string(port))
    for _ <- 1..4, do: spawn_link(fn -> accept(l) end)
    {:ok, l}
  end
  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = DynamicSupervisor.start_child(Ferries.Counters, {Ferries.Counter, s})
    :ok = :gen_tcp.controlling_process(s, pid)
    GenServer.cast(pid, :go)
    accept(l)
  end
end

defmodule Ferries.Counter do
  use GenServer, restart: :temporary
  def start_link(s), do: GenServer.start_link(__MODULE__, s)
  def init(s), do: {:ok, s}
  def handle_cast(:go, s) do
    :inet.setopts(s, active: :once)
    {:noreply, s}
  end
  def handle_info({:tcp, s, line}, s) do
    a =
      case String.split(String.trim(line)) do
        ["next", n] -> inspect(Ferries.Timetable.next(String.to_integer(n)), limit: 5)
        ["fare", n] -> Integer.to_string(Ferries.Fares.fare(String.to_integer(n)))
        ["book", n] -> Atom.to_string(Ferries.Timetable.book(String.to_integer(n)))
      end
    :gen_tcp.send(s, [a, "\n"])
    :inet.setopts(s, active: :once)
    {:noreply, s}
  end
  def handle_info({:tcp_closed, _}, s), do: {:stop, :normal, s}
  def handle_info(_, s), do: {:stop, :normal, s}
end
