defmodule Seats do
  use Application
  def start(_, _), do: Seats.Sup.start_link()
end

defmodule Seats.Sup do
  use Supervisor
  def start_link, do: Supervisor.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    terminals = for n <- 1..60, do: Supervisor.child_spec({Seats.Terminal, n}, id: {:terminal, n})
    boxes = for n <- 1..5, do: Supervisor.child_spec({Seats.Box, n}, id: {:box, n})
    Supervisor.init([Seats.Plan, Seats.Reservations, Seats.Report] ++ boxes ++ terminals, strategy: :one_for_one)
  end
end

defmodule Seats.Plan do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def price(seat), do: :ets.lookup_element(:plan, seat, 2)

  def init(_) do
    :ets.new(:plan, [:named_table, :protected, read_concurrency: true])
    for s <- 1..6000, do: :ets.insert(:plan, {s, 1500 + rem(s * 13, 60) * 100})
    {:ok, nil}
  end
end

defmodule Seats.Reservations do
  @moduledoc "holds seats for a terminal; a terminal that goes down gives its seats back"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def hold(seat), do: GenServer.call(__MODULE__, {:hold, seat})
  def sell(seat), do: GenServer.call(__MODULE__, {:sell, seat})
  def free(seat), do: GenServer.call(__MODULE__, {:free, seat})
  def held, do: GenServer.call(__MODULE__, :held)

  def init(_), do: {:ok, %{held: %{}, sold: 0, lost: 0}}

  def handle_call({:hold, seat}, {pid, _}, s) do
    if Map.has_key?(s.held, seat) do
      {:reply, :taken, s}
    else
      Process.monitor(pid)
      {:reply, :ok, put_in(s.held[seat], pid)}
    end
  end

  def handle_call({:sell, seat}, {pid, _}, s) do
    case s.held do
      %{^seat => ^pid} -> {:reply, {:ok, Seats.Plan.price(seat)}, %{s | held: Map.delete(s.held, seat), sold: s.sold + 1}}
      _ -> {:reply, :error, s}
    end
  end

  def handle_call({:free, seat}, {pid, _}, s) do
    case s.held do
      %{^seat => ^pid} -> {:reply, :ok, %{s | held: Map.delete(s.held, seat)}}
      _ -> {:reply, :error, s}
    end
  end

  def handle_call(:held, _from, s), do: {:reply, map_size(s.held), s}

  def handle_info({:DOWN, _, _, pid, _}, s) do
    {lost, held} = Map.split_with(s.held, fn {_, p} -> p == pid end)
    {:noreply, %{s | held: held, lost: s.lost + map_size(lost)}}
  end
end

defmodule Seats.Terminal do
  @moduledoc "a sales terminal: looks at some seats, holds, sells or lets go"
  use GenServer
  def start_link(n), do: GenServer.start_link(__MODULE__, n)

  def init(n) do
    Process.send_after(self(), :customer, 200 + 5 * n)
    {:ok, %{n: n, takings: 0}}
  end

  def handle_info(:customer, s) do
    seats = for _ <- 1..2, seat = :rand.uniform(6000), Seats.Reservations.hold(seat) == :ok, do: seat

    takings =
      for seat <- seats, reduce: s.takings do
        t ->
          if :rand.uniform(3) == 1 do
            Seats.Reservations.free(seat)
            t
          else
            {:ok, price} = Seats.Reservations.sell(seat)
            t + price
          end
      end

    Process.send_after(self(), :customer, 40)
    {:noreply, %{s | takings: takings}}
  end
end

defmodule Seats.Box do
  @moduledoc "the ticket printers"
  use GenServer
  def start_link(n), do: GenServer.start_link(__MODULE__, n)

  def init(n) do
    :timer.send_interval(100, :print)
    {:ok, {n, 0}}
  end

  def handle_info(:print, {n, k}), do: {:noreply, {n, k + byte_size(:io_lib.format("~5..0w ~p", [k, Seats.Plan.price(1 + rem(k, 6000))]) |> IO.iodata_to_binary())}}
end

defmodule Seats.Report do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    :timer.send_interval(1000, :look)
    {:ok, []}
  end

  def handle_info(:look, l), do: {:noreply, Enum.take([Seats.Reservations.held() | l], 60)}
end
