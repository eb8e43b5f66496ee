defmodule Grain.Application do
  use Application

  def start(_, _) do
    children = [
      Grain.Prices,
      Grain.Ledger,
      Grain.Market,
      Grain.Feed,
      Grain.Summary,
      {Task.Supervisor, name: Grain.Connections},
      Grain.Listener
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Grain.Supervisor)
  end
end

defmodule Grain.Prices do
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def put(grain, price), do: :ets.insert(__MODULE__, {grain, price})

  def get(grain) do
    case :ets.lookup(__MODULE__, grain) do
      [{_, p}] -> p
      [] -> 0
    end
  end

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :public, read_concurrency: true])
    {:ok, nil}
  end
end

defmodule Grain.Ledger do
  @moduledoc "The orders of the last ten seconds; older ones are taken out twice a second."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def note(order), do: :ets.insert(__MODULE__, {{System.monotonic_time(:millisecond), make_ref()}, order})
  def all, do: :ets.tab2list(__MODULE__)

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :public, :ordered_set, write_concurrency: true])
    Process.send_after(self(), :sweep, 500)
    {:ok, nil}
  end

  def handle_info(:sweep, s) do
    old = System.monotonic_time(:millisecond) - 10_000
    :ets.select_delete(__MODULE__, [{{{:"$1", :_}, :_}, [{:<, :"$1", old}], [true]}])
    Process.send_after(self(), :sweep, 500)
    {:noreply, s}
  end
end

defmodule Grain.Market do
  @moduledoc "Matches the orders."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def order(o), do: GenServer.cast(__MODULE__, {:order, o})
  def init(_), do: {:ok, Map.new(0..29, &{"g#{&1}", 1100})}

  def handle_cast({:order, {grain, amount, price}}, s) do
    Grain.Ledger.note({grain, amount, price, String.duplicate("x", 100)})
    new = div(Map.fetch!(s, grain) * 9 + price, 10)
    Grain.Prices.put(grain, new)
    {:noreply, %{s | grain => new}}
  end
end

defmodule Grain.Feed do
  @moduledoc "The other exchanges send their orders once a second, all at once."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :batch, 1000)
    {:ok, 0}
  end

  def handle_info(:batch, n) do
    for i <- 1..1500, do: Grain.Market.order({"g#{rem(i * n, 30)}", rem(i, 90) - 45, 1000 + rem(i * 7 + n, 200)})
    Process.send_after(self(), :batch, 1000)
    {:noreply, n + 1}
  end
end

defmodule Grain.Summary do
  @moduledoc "Every two seconds a process makes the summary of the last orders and ends."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :make, 2000)
    {:ok, %{made: 0, last: ""}}
  end

  def handle_info(:make, s) do
    Process.send_after(self(), :make, 2000)
    me = self()
    spawn_link(fn -> send(me, {:made, make()}) end)
    {:noreply, s}
  end

  def handle_info({:made, text}, s), do: {:noreply, %{s | made: s.made + 1, last: text}}

  defp make do
    Grain.Ledger.all()
    |> Enum.group_by(fn {_, {grain, _, _, _}} -> grain end)
    |> Enum.map(fn {grain, os} -> [grain, " ", Enum.map(Enum.take(os, 40), fn {_, {_, a, p, _}} -> "#{a}@#{p} " end), ?\n] end)
    |> IO.iodata_to_binary()
  end
end

defmodule Grain.Listener do
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
    {:ok, pid} = Task.Supervisor.start_child(Grain.Connections, fn -> receive do: (:go -> Grain.Connection.serve(s)) end)
    case :gen_tcp.controlling_process(s, pid) do
      :ok -> send(pid, :go)
      _ -> Process.exit(pid, :kill)
    end
    accept(l)
  end
end

defmodule Grain.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [Grain.Api.answer(String.split(line)), ?\n])
        serve(s)
      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Grain.Api do
  def answer(["price", grain]), do: "price #{Grain.Prices.get(grain)}"

  def answer(["order", grain, amount, price]) do
    Grain.Market.order({:binary.copy(grain), String.to_integer(amount), String.to_integer(price)})
    "taken"
  end
end
