defmodule Cinema.Application do
  use Application
  def start(_, _) do
    children = [
      {Registry, keys: :unique, name: Cinema.Names},
      Cinema.Films,
      {Cinema.Season, 1}, {Cinema.Season, 2}, {Cinema.Season, 3},
      Cinema.Screens,
      {Task.Supervisor, name: Cinema.Offices},
      Cinema.Listener
    ]
    Supervisor.start_link(children, strategy: :one_for_one, name: Cinema.Supervisor)
  end
end

defmodule Cinema.Films do
  use Agent
  def start_link(_), do: Agent.start_link(fn -> Map.new(1..300, &{&1, "film #{&1}"}) end, name: __MODULE__)
  def title(n), do: Agent.get(__MODULE__, &Map.get(&1, rem(n, 300) + 1))
end

defmodule Cinema.Screens do
  @moduledoc "What the screens in the lobby show"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def init(_) do
    Process.send_after(self(), :show, 500)
    {:ok, 0}
  end
  def handle_info(:show, n) do
    Process.send_after(self(), :show, 500)
    _ = for i <- 1..20, do: Cinema.Films.title(n + i)
    {:noreply, n + 20}
  end
end

defmodule Cinema.Season do
  @moduledoc "The seats of all performances of one house in this season"
  use GenServer
  def child_spec(house), do: %{id: {__MODULE__, house}, start: {__MODULE__, :start_link, [house]}}
  def start_link(house), do: GenServer.start_link(__MODULE__, house, name: via(house))
  defp via(house), do: {:via, Registry, {Cinema.Names, house}}
  def free?(house, seat), do: GenServer.call(via(house), {:free?, seat}, 20_000)
  def sell(house, seat), do: GenServer.call(via(house), {:sell, seat}, 20_000)

  def init(house) do
    Process.flag(:fullsweep_after, 20)
    Process.send_after(self(), :audit, 1000)
    {:ok, %{house: house, sold: 0, seats: seats(house)}, :hibernate}
  end

  defp seats(house) do
    for n <- 1..60_000, into: %{} do
      {n, %{row: rem(n, 30), place: rem(n, 41), price: 900 + rem(n * house, 700), state: :free, tags: [n, house], at: {rem(n, 365), rem(n, 24)}}}
    end
  end

  def handle_call({:free?, n}, _, s), do: {:reply, s.seats[n].state, s, :hibernate}
  def handle_call({:sell, n}, _, s) do
    {:reply, :ok, %{s | sold: s.sold + 1, seats: Map.update!(s.seats, n, &%{&1 | state: :sold})}, :hibernate}
  end
  def handle_info(:audit, s) do
    Process.send_after(self(), :audit, 1000)
    {:noreply, s, :hibernate}
  end
end

defmodule Cinema.Listener do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def init(_) do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, backlog: 512, nodelay: true])
    {:ok, port} = :inet.port(l)
    File.write!(System.get_env("PORT_FILE"), Integer.to_string(port))
    spawn_link(fn -> accept(l) end)
    {:ok, l}
  end
  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Cinema.Offices, Cinema.Office, :serve, [s])
    :gen_tcp.controlling_process(s, pid)
    accept(l)
  end
end

defmodule Cinema.Office do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        [what, house, n] = String.split(line)
        {house, n} = {String.to_integer(house), String.to_integer(n)}
        answer =
          case what do
            "free" -> Cinema.Season.free?(house, n)
            "sell" -> Cinema.Season.sell(house, n)
            "film" -> Cinema.Films.title(n)
          end
        :gen_tcp.send(s, "#{answer}\n")
        serve(s)
      _ -> :ok
    end
  end
end
