defmodule Charging do
  use Application
  def start(_, _), do: Charging.Sup.start_link()
end

defmodule Charging.Sup do
  use Supervisor
  def start_link, do: Supervisor.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    Supervisor.init(
      [
        Charging.Tariffs,
        {Registry, keys: :unique, name: Charging.Points},
        Charging.Billing,
        {DynamicSupervisor, name: Charging.Links, strategy: :one_for_one},
        Charging.Listener
      ],
      strategy: :one_for_one
    )
  end
end

defmodule Charging.Tariffs do
  @moduledoc "prices per quarter of an hour and zone"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def price(zone, quarter), do: :ets.lookup_element(:tariffs, {zone, quarter}, 2)

  def init(_) do
    :ets.new(:tariffs, [:named_table, :protected, read_concurrency: true])
    for z <- 0..49, q <- 0..671, do: :ets.insert(:tariffs, {{z, q}, 20 + rem(z * q * 31, 40)})
    {:ok, nil}
  end
end

defmodule Charging.Profile do
  @moduledoc "the week's charging profile which a point gets when it announces itself"
  def build(id) do
    zone = rem(id, 50)
    prices = for q <- 0..671, do: {q, Charging.Tariffs.price(zone, q)}
    ranked = Enum.sort_by(prices, fn {q, p} -> {p, :erlang.phash2({id, q})} end)

    limits =
      ranked
      |> Enum.with_index()
      |> Enum.map(fn {{q, p}, i} -> {q, p, if(i < 300, do: 22.0, else: 22.0 - (i - 300) * 0.05)} end)
      |> Enum.sort()

    rows = for {q, p, kw} <- limits, do: ["{\"q\":", Integer.to_string(q), ",\"ct\":", Integer.to_string(p), ",\"kw\":", :erlang.float_to_binary(kw, decimals: 2), "}"]
    body = IO.iodata_to_binary(["[", Enum.intersperse(rows, ","), "]"])
    sign = :erlang.md5(body) |> Base.encode16()
    ["PROFILE ", Integer.to_string(byte_size(body)), " ", sign, "\n", body, "\n"]
  end
end

defmodule Charging.Link do
  @moduledoc "the connection of one charging point"
  use GenServer, restart: :temporary
  def start_link(socket), do: GenServer.start_link(__MODULE__, socket)
  def init(socket), do: {:ok, %{socket: socket, id: nil, beats: 0, idle: Application.fetch_env!(:charging, :link_idle_ms)}}

  def handle_info(:go, s) do
    :inet.setopts(s.socket, active: :once)
    {:noreply, s, s.idle}
  end

  def handle_info({:tcp, socket, line}, s) do
    :inet.setopts(socket, active: :once)
    {:noreply, line(String.split(String.trim(line), " "), s), s.idle}
  end

  def handle_info({:tcp_closed, _}, s), do: {:stop, :normal, s}
  def handle_info({:tcp_error, _, _}, s), do: {:stop, :normal, s}

  def handle_info(:timeout, s) do
    :gen_tcp.close(s.socket)
    {:stop, :normal, s}
  end

  defp line(["HELLO", id], s) do
    id = String.to_integer(id)
    {:ok, _} = Registry.register(Charging.Points, id, System.system_time(:second))
    :gen_tcp.send(s.socket, Charging.Profile.build(id))
    %{s | id: id}
  end

  defp line(["BEAT", wh], s) do
    Charging.Billing.energy(s.id, String.to_integer(wh))
    :gen_tcp.send(s.socket, "OK\n")
    %{s | beats: s.beats + 1}
  end
end

defmodule Charging.Listener do
  use Task, restart: :permanent
  def start_link(_), do: Task.start_link(__MODULE__, :run, [])

  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, reuseaddr: true, ip: {127, 0, 0, 1}, backlog: 1024])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), "#{port}")
    for _ <- 2..Application.fetch_env!(:charging, :acceptors), do: spawn_link(fn -> accept(l) end)
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = DynamicSupervisor.start_child(Charging.Links, {Charging.Link, s})
    :ok = :gen_tcp.controlling_process(s, pid)
    send(pid, :go)
    accept(l)
  end
end

defmodule Charging.Billing do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def energy(id, wh), do: GenServer.cast(__MODULE__, {:energy, id, wh})

  def init(_) do
    :timer.send_interval(Application.fetch_env!(:charging, :billing_interval_ms), :close_period)
    {:ok, {%{}, 0}}
  end

  def handle_cast({:energy, id, wh}, {m, n}), do: {:noreply, {Map.update(m, id, wh, &(&1 + wh)), n}}
  def handle_info(:close_period, {m, n}), do: {:noreply, {%{}, n + map_size(m)}}
end
