defmodule Odds.Application do
  use Application

  def start(_, _) do
    children = [Odds.Book, Odds.Ranker, {Task.Supervisor, name: Odds.Connections}, Odds.Listener]
    Supervisor.start_link(children, strategy: :one_for_one, name: Odds.Supervisor)
  end
end

defmodule Odds.Book do
  @moduledoc "Bets of each market."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def bet(market, amount), do: GenServer.call(__MODULE__, {:bet, market, amount})
  def stakes, do: :ets.tab2list(__MODULE__)
  def stake(market), do: :ets.lookup(__MODULE__, market)

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :protected, read_concurrency: true])
    for i <- 0..199, do: :ets.insert(__MODULE__, {"m#{i}", 100 + i, 1})
    {:ok, 0}
  end

  def handle_call({:bet, market, amount}, _, n) do
    :ets.update_counter(__MODULE__, market, [{2, amount}, {3, 1}], {market, 0, 0})
    {:reply, n, n + 1}
  end
end

defmodule Odds.Ranker do
  @moduledoc "Ranks the markets against each other; the front page lives from it."
  use GenServer

  # refinements of the ranking
  @rounds 60

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    Process.flag(:priority, :high)
    :ets.new(__MODULE__, [:named_table, :protected, read_concurrency: true])
    Process.send_after(self(), :rank, 40)
    {:ok, @rounds}
  end

  def handle_info(:rank, rounds) do
    stakes = Odds.Book.stakes()
    ranks = Enum.reduce(1..rounds, nil, fn _, _ -> rank(stakes) end)
    :ets.insert(__MODULE__, ranks)
    Process.send_after(self(), :rank, 40)
    {:noreply, rounds}
  end

  def rank(stakes) do
    for {m, stake, bets} <- stakes do
      {m, Enum.reduce(stakes, 0.0, fn {_, s, b}, a -> a + :math.sqrt(abs(stake - s) + 1) / (1 + abs(bets - b)) end)}
    end
  end

  def of(market) do
    case :ets.lookup(__MODULE__, market) do
      [{_, r}] -> r
      [] -> 1.0
    end
  end
end

defmodule Odds.Listener do
  @moduledoc "TCP front of the odds service"
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
    {:ok, pid} = Task.Supervisor.start_child(Odds.Connections, fn -> receive do: (:go -> Odds.Connection.serve(s)) end)
    case :gen_tcp.controlling_process(s, pid) do
      :ok -> send(pid, :go)
      _ -> Process.exit(pid, :kill)
    end
    accept(l)
  end
end

defmodule Odds.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [Odds.Api.answer(String.split(line)), ?\n])
        serve(s)
      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Odds.Api do
  def answer(["price", m]) do
    [{_, stake, bets}] = Odds.Book.stake(m)
    "price #{Float.round(1.01 + Odds.Ranker.of(m) / (stake + bets), 2)}"
  end

  def answer(["bet", m, amount]), do: "bet #{Odds.Book.bet(m, String.to_integer(amount))}"
end
