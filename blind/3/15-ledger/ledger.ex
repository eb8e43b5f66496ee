defmodule Ledger.Application do
  use Application

  def start(_type, _args) do
    children = [
      Ledger.Stats,
      {Ledger.Pool, 5},
      {Task.Supervisor, name: Ledger.Jobs},
      Ledger.Payments,
      Ledger.Balances
    ]

    Supervisor.start_link(children, strategy: :rest_for_one, name: Ledger.Supervisor)
  end
end

defmodule Ledger.Stats do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def took(kind, us), do: GenServer.cast(__MODULE__, {:took, kind, us})
  def init(_), do: {:ok, %{}}
  def handle_cast({:took, k, us}, s), do: {:noreply, Map.update(s, k, [us], &Enum.take([us | &1], 300))}

  def handle_call(:median, _, s) do
    {:reply, Map.new(s, fn {k, l} -> {k, l |> Enum.sort() |> Enum.at(div(length(l), 2))} end), s}
  end
end

defmodule Ledger.Pool do
  @moduledoc "A small pool of connections to the core bank"
  use GenServer
  def start_link(n), do: GenServer.start_link(__MODULE__, n, name: __MODULE__)

  def with_connection(fun) do
    c = GenServer.call(__MODULE__, :checkout, 15_000)

    try do
      fun.(c)
    after
      GenServer.cast(__MODULE__, {:checkin, c})
    end
  end

  def init(n) do
    free = for _ <- 1..n, do: elem(Ledger.Connection.start_link([]), 1)
    {:ok, %{free: free, waiting: :queue.new()}}
  end

  def handle_call(:checkout, _from, %{free: [c | rest]} = s), do: {:reply, c, %{s | free: rest}}
  def handle_call(:checkout, from, s), do: {:noreply, %{s | waiting: :queue.in(from, s.waiting)}}

  def handle_cast({:checkin, c}, s) do
    case :queue.out(s.waiting) do
      {{:value, from}, q} ->
        GenServer.reply(from, c)
        {:noreply, %{s | waiting: q}}

      {:empty, _} ->
        {:noreply, %{s | free: [c | s.free]}}
    end
  end
end

defmodule Ledger.Connection do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil)
  def request(c, kind, body), do: GenServer.call(c, {:request, kind, body})

  def init(_) do
    port = String.to_integer(System.fetch_env!("CORE_PORT"))
    {:ok, socket} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, packet: :raw, active: false, keepalive: true])
    {:ok, %{socket: socket, seq: 0}}
  end

  def handle_call({:request, kind, body}, _from, s) do
    seq = s.seq + 1
    :ok = :gen_tcp.send(s.socket, <<kind::8, seq::32, byte_size(body)::32>>)
    :ok = :gen_tcp.send(s.socket, body)
    {:ok, <<^seq::32, len::32>>} = :gen_tcp.recv(s.socket, 8)
    {:ok, answer} = :gen_tcp.recv(s.socket, len)
    {:reply, answer, %{s | seq: seq}}
  end
end

defmodule Ledger.Payments do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :next, 1000)
    {:ok, 0}
  end

  def handle_info(:next, n) do
    Process.send_after(self(), :next, 12 + :rand.uniform(8))

    Task.Supervisor.start_child(Ledger.Jobs, fn ->
      t = System.monotonic_time(:microsecond)
      body = "pay;from=#{:rand.uniform(9000)};to=#{:rand.uniform(9000)};cents=#{:rand.uniform(100_000)};text=invoice #{n}"
      "booked" <> _ = Ledger.Pool.with_connection(&Ledger.Connection.request(&1, 1, body))
      Ledger.Stats.took(:payment, System.monotonic_time(:microsecond) - t)
    end)

    {:noreply, n + 1}
  end
end

defmodule Ledger.Balances do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :next, 1500)
    {:ok, 0}
  end

  def handle_info(:next, n) do
    Process.send_after(self(), :next, 150)

    Task.Supervisor.start_child(Ledger.Jobs, fn ->
      t = System.monotonic_time(:microsecond)
      _ = Ledger.Pool.with_connection(&Ledger.Connection.request(&1, 2, "balance;account=#{:rand.uniform(9000)}"))
      Ledger.Stats.took(:balance, System.monotonic_time(:microsecond) - t)
    end)

    {:noreply, n + 1}
  end
end
