defmodule Paddock.Application do
  use Application

  def start(_type, _args) do
    children = [
      {Registry, keys: :duplicate, name: Paddock.Subscriptions},
      Paddock.Odds,
      Paddock.Feed,
      Paddock.Bets,
      {DynamicSupervisor, name: Paddock.Sessions, strategy: :one_for_one},
      {Task, fn -> Paddock.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Paddock.Supervisor)
  end
end

defmodule Paddock.Odds do
  @moduledoc "The current odds by market (races and their bets)"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:paddock_odds, [:named_table, :public, read_concurrency: true])
    {:ok, nil}
  end

  def put(market, doc), do: :ets.insert(:paddock_odds, {market, doc})

  def get(market) do
    case :ets.lookup(:paddock_odds, market) do
      [{_, doc}] -> doc
      [] -> "{}"
    end
  end
end

defmodule Paddock.Feed do
  @moduledoc "Changes of the odds, as they come from the tracks"
  use GenServer
  @markets 300
  @per_tick 120
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def markets, do: @markets

  def init(_) do
    :timer.send_interval(25, :tick)
    {:ok, 0}
  end

  def handle_info(:tick, n) do
    for i <- 1..@per_tick, do: publish(rem(n + i, @markets) + 1, n + i)
    {:noreply, n + @per_tick}
  end

  defp publish(market, n) do
    doc = document(market, n)
    Paddock.Odds.put(market, doc)
    Registry.dispatch(Paddock.Subscriptions, market, fn subs -> for {pid, _} <- subs, do: send(pid, {:odds, market, doc}) end)
  end

  defp document(market, n) do
    runners =
      for h <- 1..16 do
        x = :erlang.phash2({market, h, n}, 45_000_000)
        ["{\"horse\":\"H", Integer.to_string(market * 20 + h), "\",\"win\":", Integer.to_string(rem(x, 9000)),
         ",\"place\":", Integer.to_string(div(x, 9000)), ",\"pool\":", Integer.to_string(rem(x * 7, 500_000)), "},"]
      end

    IO.iodata_to_binary(["{\"market\":", Integer.to_string(market), ",\"seq\":", Integer.to_string(n), ",\"runners\":[", runners, "null]}"])
  end
end

defmodule Paddock.Bets do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def place(market, amount), do: GenServer.call(__MODULE__, {:place, market, amount})
  def init(_), do: {:ok, %{}}
  def handle_call({:place, m, a}, _, s), do: {:reply, :ok, Map.update(s, m, a, &(&1 + a))}
end

defmodule Paddock.Session do
  @moduledoc """
  A client's session. Lines in: sub FIRST LAST | deflate on | bet MARKET AMOUNT
  Frames out: <<length::32, compressed::8, body>>
  """
  use GenServer, restart: :temporary

  def start_link(socket), do: GenServer.start_link(__MODULE__, socket)
  def go(pid), do: GenServer.cast(pid, :go)

  def init(socket), do: {:ok, %{socket: socket, z: nil, sent: 0}}

  def handle_cast(:go, s) do
    :inet.setopts(s.socket, active: true)
    {:noreply, s}
  end

  def handle_info({:odds, _market, doc}, s), do: {:noreply, out(s, doc)}

  def handle_info({:tcp, _, line}, s) do
    case String.split(String.trim(line), " ") do
      ["sub", a, b] ->
        for m <- String.to_integer(a)..String.to_integer(b) do
          Registry.register(Paddock.Subscriptions, m, nil)
          send(self(), {:odds, m, Paddock.Odds.get(m)})
        end

        {:noreply, s}

      ["deflate", "on"] ->
        z = :zlib.open()
        :ok = :zlib.deflateInit(z, 9, :deflated, -15, 9, :default)
        {:noreply, %{s | z: z}}

      ["bet", m, a] ->
        :ok = Paddock.Bets.place(String.to_integer(m), String.to_integer(a))
        {:noreply, out(s, "{\"bet\":\"taken\"}")}
    end
  end

  def handle_info({:tcp_closed, _}, s), do: {:stop, :normal, s}
  def handle_info({:tcp_error, _, _}, s), do: {:stop, :normal, s}

  # one dictionary for the whole connection, flushed after each message
  defp out(%{z: nil} = s, doc), do: frame(s, 0, doc)
  defp out(%{z: z} = s, doc), do: frame(s, 1, deflate(z, doc))

  def deflate(z, doc), do: :zlib.deflate(z, doc, :sync)

  defp frame(s, flag, body) do
    :gen_tcp.send(s.socket, [<<IO.iodata_length(body) + 1::32, flag>>, body])
    %{s | sent: s.sent + 1}
  end
end

defmodule Paddock.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 128, nodelay: true, sndbuf: 262_144])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = DynamicSupervisor.start_child(Paddock.Sessions, {Paddock.Session, s})
    :ok = :gen_tcp.controlling_process(s, pid)
    Paddock.Session.go(pid)
    accept(l)
  end
end
