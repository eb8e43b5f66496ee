defmodule Courier.Application do
  use Application

  def start(_, _) do
    children =
      [Courier.Positions] ++
        for(i <- 0..3, do: Supervisor.child_spec({Courier.Planner, i}, id: {:planner, i})) ++
        [{Task.Supervisor, name: Courier.Connections}, Courier.Listener]

    Supervisor.start_link(children, strategy: :one_for_one, name: Courier.Supervisor)
  end
end

defmodule Courier.Positions do
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def where(courier) do
    case :ets.lookup(__MODULE__, courier) do
      [{_, place}] -> place
      [] -> 0
    end
  end

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :protected, read_concurrency: true])
    for c <- 0..199, do: :ets.insert(__MODULE__, {"c#{c}", rem(c * 37, 400)})
    {:ok, nil}
  end
end

defmodule Courier.Planner do
  @moduledoc "Plans tours: shortest paths between the stops of a tour on the part of the town around them."
  use GenServer

  def start_link(i), do: GenServer.start_link(__MODULE__, i, name: :"courier_planner_#{i}")
  def plan(stops), do: GenServer.call(:"courier_planner_#{:erlang.phash2(stops, 4)}", {:plan, stops}, 10_000)
  def init(i), do: {:ok, %{i: i, planned: 0}}

  def handle_call({:plan, stops}, _, s) do
    {:reply, length_of(stops), %{s | planned: s.planned + 1}}
  end

  defp length_of(stops) do
    town = :digraph.new()
    places = Enum.uniq(stops ++ for(s <- stops, d <- -6..6, do: Integer.mod(s + d * 5, 400)))
    Enum.each(places, &:digraph.add_vertex(town, &1))

    for a <- places, k <- [1, 5, 20, 63], b = Integer.mod(a + k, 400), b in places do
      :digraph.add_edge(town, a, b)
      :digraph.add_edge(town, b, a)
    end

    seen = :ets.new(:tour, [:set, :private])

    stops
    |> Enum.chunk_every(2, 1, :discard)
    |> Enum.map(fn [a, b] ->
      n = case :digraph.get_short_path(town, a, b) do
        false -> 40
        path -> length(path)
      end

      :ets.insert(seen, {{a, b}, n})
      n
    end)

    :ets.foldl(fn {_, n}, sum -> sum + n end, 0, seen)
  end
end

defmodule Courier.Listener do
  @moduledoc "TCP front"
  use Task, restart: :permanent

  def start_link(_), do: Task.start_link(__MODULE__, :listen, [])

  def listen do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, reuseaddr: true, backlog: 256, ip: {127, 0, 0, 1}, nodelay: true, buffer: 65_536])
    {:ok, port} = :inet.port(l)
    file = System.fetch_env!("PORT_FILE")
    File.write!(file <> ".new", "#{port}")
    File.rename!(file <> ".new", file)
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Courier.Connections, fn -> receive do: (:go -> Courier.Connection.serve(s)) end)
    case :gen_tcp.controlling_process(s, pid) do
      :ok -> send(pid, :go)
      _ -> Process.exit(pid, :kill)
    end
    accept(l)
  end
end

defmodule Courier.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [Courier.Api.answer(String.split(line)), ?\n])
        serve(s)
      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Courier.Api do
  def answer(["where", c]), do: "at #{Courier.Positions.where(c)}"
  def answer(["plan" | stops]), do: "tour #{Courier.Planner.plan(Enum.map(stops, &String.to_integer/1))}"
end
