defmodule Museum.Application do
  use Application

  def start(_type, _args) do
    children = [
      Museum.Objects,
      Museum.Climate,
      {Task.Supervisor, name: Museum.Connections},
      {Task, fn -> Museum.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Museum.Supervisor)
  end
end

defmodule Museum.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Museum.Connections, fn -> Museum.Connection.serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end
end

defmodule Museum.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :gen_tcp.send(s, [answer(String.split(String.trim(line), " ")), "\n"])
        serve(s)

      {:error, _} ->
        :ok
    end
  end

  defp answer(["room", r]) do
    r = String.to_integer(r)
    here = for o <- Museum.Objects.all(), o.room == r, do: o.id
    "#{length(here)} #{Enum.max(here, fn -> 0 end)}"
  end

  defp answer(["move", id, r]) do
    :ok = Museum.Objects.move(String.to_integer(id), String.to_integer(r))
    "moved"
  end

  defp answer(["climate", r]), do: Integer.to_string(Museum.Climate.of(String.to_integer(r)))
end

defmodule Museum.Objects do
  @moduledoc "All objects of the collection, in memory, since the database was too slow."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, 15_000, name: __MODULE__)
  def all, do: GenServer.call(__MODULE__, :all, 30_000)
  def move(id, room), do: GenServer.call(__MODULE__, {:move, id, room}, 30_000)

  def init(n) do
    {:ok,
     Map.new(1..n, fn id ->
       {id, %{id: id, room: rem(id * 7919, 140), title: ~c"object #{id}", year: 1400 + rem(id, 600), lent: nil, tags: [:stored, :photo, rem(id, 9)]}}
     end)}
  end

  def handle_call(:all, _, objects), do: {:reply, Map.values(objects), objects}
  def handle_call({:move, id, room}, _, objects), do: {:reply, :ok, put_in(objects[id].room, room)}
end

defmodule Museum.Climate do
  @moduledoc "Temperature of the rooms."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def of(room), do: GenServer.call(__MODULE__, {:of, room})

  def init(_) do
    :timer.send_interval(1000, :measure)
    {:ok, Map.new(0..139, &{&1, 195})}
  end

  def handle_call({:of, room}, _, m), do: {:reply, m[room], m}
  def handle_info(:measure, m), do: {:noreply, Map.new(m, fn {r, t} -> {r, t + :rand.uniform(3) - 2} end)}
end
