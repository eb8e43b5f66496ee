defmodule Dungeon.Application do
  use Application

  def start(_, _) do
    children = [
      Dungeon.World,
      {DynamicSupervisor, name: Dungeon.Clients, strategy: :one_for_one, max_restarts: 1_000_000, max_seconds: 1},
      Dungeon.Monsters,
      {Task, fn -> Dungeon.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Dungeon.Supervisor)
  end
end

defmodule Dungeon.World do
  @moduledoc "Who is where. Everything that happens in a room is told to all clients in it."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def join(room), do: GenServer.call(__MODULE__, {:join, room, self()})
  def tell(room, what), do: for({_, pid} <- :ets.lookup(__MODULE__, room), do: send(pid, {:tell, what}))
  def count, do: :ets.info(__MODULE__, :size)

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :bag, :protected, read_concurrency: true])
    {:ok, %{}}
  end

  def handle_call({:join, room, pid}, _, s) do
    :ets.insert(__MODULE__, {room, pid})
    {:reply, :ok, Map.put(s, Process.monitor(pid), {room, pid})}
  end

  def handle_info({:DOWN, ref, _, _, _}, s) do
    {row, s} = Map.pop!(s, ref)
    :ets.delete_object(__MODULE__, row)
    {:noreply, s}
  end
end

defmodule Dungeon.Client do
  @moduledoc "A player's connection."
  use GenServer
  def start_link(args), do: GenServer.start_link(__MODULE__, args)

  def init({socket, room}) do
    :ok = Dungeon.World.join(room)
    {:ok, %{socket: socket, room: room, hp: 100, told: 0, bag: Enum.map(1..30, &{&1, :rand.uniform(100)})}}
  end

  def handle_cast(:owner, s) do
    :inet.setopts(s.socket, active: true)
    {:noreply, s}
  end

  def handle_info({:tell, what}, s) do
    :gen_tcp.send(s.socket, [what, "\n"])
    {:noreply, %{s | told: s.told + 1}}
  end

  def handle_info({:tcp, _, "hit" <> _}, s) do
    Dungeon.World.tell(s.room, "somebody hits the dragon")
    {:noreply, %{s | hp: max(1, s.hp - 1)}}
  end

  def handle_info({:tcp, _, _}, s), do: {:noreply, s}
  def handle_info({:tcp_closed, _}, s), do: {:stop, :normal, s}
  def handle_info({:tcp_error, _, _}, s), do: {:stop, :normal, s}
end

defmodule Dungeon.Monsters do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :tick, 500)
    {:ok, 0}
  end

  def handle_info(:tick, n) do
    for r <- 1..60, rem(r + n, 2) == 0, do: Dungeon.World.tell(r, "the dragon of room #{r} roars (#{n})")
    Process.send_after(self(), :tick, 500)
    {:noreply, n + 1}
  end
end

defmodule Dungeon.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 256])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = DynamicSupervisor.start_child(Dungeon.Clients, {Dungeon.Client, {s, :rand.uniform(60)}})
    :ok = :gen_tcp.controlling_process(s, pid)
    GenServer.cast(pid, :owner)
    accept(l)
  end
end
