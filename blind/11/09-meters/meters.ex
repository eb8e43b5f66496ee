defmodule Meters.Application do
  use Application

  def start(_, _) do
    children = [
      Meters.Readings,
      Meters.Frames,
      {Task.Supervisor, name: Meters.Connections},
      Meters.Listener
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Meters.Supervisor)
  end
end

defmodule Meters.Readings do
  @moduledoc "The last reading of each meter."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def put(meter, value), do: :ets.insert(__MODULE__, {meter, value, System.os_time(:second)})

  def last(meter) do
    case :ets.lookup(__MODULE__, meter) do
      [{_, value, _}] -> value
      [] -> 0
    end
  end

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :public, write_concurrency: true])
    for m <- 0..19_999, do: put("m#{m}", m)
    {:ok, nil}
  end
end

defmodule Meters.Frames do
  @moduledoc """
  A frame is heard by several gateways; the first copy counts.
  The key of each frame that was accepted is remembered with the gateway and the time.
  """
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def accept(meter, counter, payload, gateway) do
    :ets.insert_new(:meters_heard, {{meter, counter}, payload, gateway, System.os_time(:millisecond)})
  end

  def init(_) do
    :ets.new(:meters_heard, [:named_table, :public, write_concurrency: true])
    {:ok, nil}
  end
end

defmodule Meters.Listener do
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
    {:ok, pid} = Task.Supervisor.start_child(Meters.Connections, fn -> receive do: (:go -> Meters.Connection.serve(s)) end)
    case :gen_tcp.controlling_process(s, pid) do
      :ok -> send(pid, :go)
      _ -> Process.exit(pid, :kill)
    end
    accept(l)
  end
end

defmodule Meters.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [Meters.Api.answer(String.split(line)), ?\n])
        serve(s)
      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Meters.Api do
  def answer(["last", meter]), do: "last #{Meters.Readings.last(meter)}"

  def answer(["frames", gateway | frames]) do
    new =
      Enum.count(frames, fn f ->
        [meter, counter, payload] = String.split(f, ":")
        {value, _} = Integer.parse(payload, 16)

        Meters.Frames.accept(:binary.copy(meter), String.to_integer(counter), :binary.copy(payload), :binary.copy(gateway)) and
          Meters.Readings.put(:binary.copy(meter), rem(value, 100_000))
      end)

    "accepted #{new}"
  end
end
