defmodule Payroll.Application do
  use Application

  def start(_type, _args) do
    children = [
      Payroll.Rates,
      Payroll.File,
      {Task.Supervisor, name: Payroll.Computing},
      Payroll.Clock,
      Payroll.Desk
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Payroll.Supervisor)
  end
end

defmodule Payroll.Rates do
  use Agent
  def start_link(_), do: Agent.start_link(fn -> for(i <- 0..60, into: %{}, do: {i, 1.0 - i / 200}) end, name: __MODULE__)
  def all, do: Agent.get(__MODULE__, & &1)
end

defmodule Payroll.File do
  @moduledoc "Files the slips one after the other (the law wants the numbers without gaps)"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def file(slip), do: GenServer.cast(__MODULE__, {:file, slip})
  def last, do: GenServer.call(__MODULE__, :last, 10_000)
  def init(_), do: {:ok, %{number: 0, hash: <<0::256>>, filed: :queue.new()}}

  def handle_cast({:file, slip}, s) do
    hash = Enum.reduce(1..12, s.hash, fn _, h -> :crypto.hash(:sha256, [h, :erlang.term_to_binary(slip)]) end)
    {:noreply, %{s | number: s.number + 1, hash: hash}}
  end

  def handle_call(:last, _from, s), do: {:reply, {s.number, Base.encode16(s.hash)}, s}
end

defmodule Payroll.Clock do
  @moduledoc "A firm's month is due every six seconds: some 8000 slips at once"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :month, 1000)
    {:ok, 0}
  end

  def handle_info(:month, n) do
    Process.send_after(self(), :month, 6000)
    rates = Payroll.Rates.all()

    for part <- 0..15 do
      Task.Supervisor.start_child(Payroll.Computing, fn ->
        Process.flag(:priority, :low)

        for e <- 1..500 do
          gross = 200_000 + rem(e * 7919 + part, 400_000)
          net = Enum.reduce(1..40, gross, fn k, acc -> acc - gross * (1 - rates[k]) / 400 end)
          Payroll.File.file(%{firm: n, part: part, employee: e, gross: gross, net: round(net)})
        end
      end)
    end

    {:noreply, n + 1}
  end
end

defmodule Payroll.Desk do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :look, 1500)
    {:ok, []}
  end

  def handle_info(:look, s) do
    Process.send_after(self(), :look, 1000)
    t = System.monotonic_time(:millisecond)
    {n, _} = Payroll.File.last()
    {:noreply, Enum.take([{n, System.monotonic_time(:millisecond) - t} | s], 60)}
  end
end
