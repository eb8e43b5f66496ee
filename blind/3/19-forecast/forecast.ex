defmodule Forecast.Application do
  use Application

  def start(_type, _args) do
    children = [
      {Registry, keys: :unique, name: Forecast.Places},
      Forecast.Grid,
      {Task.Supervisor, name: Forecast.Tasks},
      {DynamicSupervisor, name: Forecast.PlaceSup, strategy: :one_for_one},
      Supervisor.child_spec({Forecast.Askers, 40}, id: :askers)
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Forecast.Supervisor)
  end
end

defmodule Forecast.Grid do
  @moduledoc "The last run of the model, read by all; a new one replaces the old every 10 s"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def at(i), do: :ets.lookup_element(__MODULE__, i, 2)

  def init(_) do
    t = :ets.new(__MODULE__, [:named_table, read_concurrency: true])
    fill(t, 0)
    Process.send_after(self(), {:run, 1}, 10_000)
    {:ok, t}
  end

  def handle_info({:run, n}, t) do
    Process.send_after(self(), {:run, n + 1}, 10_000)
    fill(t, n)
    {:noreply, t}
  end

  defp fill(t, n), do: for(i <- 1..20_000, do: :ets.insert(t, {i, {rem(i * 31 + n, 40) - 10, rem(i + n, 100), n}}))
end

defmodule Forecast.Place do
  @moduledoc "A place that is asked for lives three seconds after the last question"
  use GenServer, restart: :temporary
  def start_link(i), do: GenServer.start_link(__MODULE__, i, name: via(i))
  def via(i), do: {:via, Registry, {Forecast.Places, i}}

  def ask(i) do
    GenServer.call(via(i), :ask)
  catch
    :exit, _ ->
      _ = DynamicSupervisor.start_child(Forecast.PlaceSup, {__MODULE__, i})
      GenServer.call(via(i), :ask)
  end

  def init(i), do: {:ok, %{id: i, n: 0}, 3000}

  def handle_call(:ask, _from, s) do
    {temp, rain, run} = Forecast.Grid.at(s.id)
    {:reply, %{temp: temp, rain: rain, run: run, text: "#{temp} degrees, #{rain} percent"}, %{s | n: s.n + 1}, 3000}
  end

  def handle_info(:timeout, s), do: {:stop, {:shutdown, :unused}, s}
end

defmodule Forecast.Askers do
  @moduledoc "Stands for the visitors: each question runs in a task of its own"
  use GenServer
  def start_link(n), do: GenServer.start_link(__MODULE__, n, name: __MODULE__)

  def init(n) do
    Process.send_after(self(), :ask, 1000)
    {:ok, n}
  end

  def handle_info(:ask, n) do
    Process.send_after(self(), :ask, 40)

    for _ <- 1..n do
      i = if :rand.uniform(3) == 1, do: :rand.uniform(300), else: :rand.uniform(20_000)
      Task.Supervisor.start_child(Forecast.Tasks, fn -> Forecast.Place.ask(i) end)
    end

    {:noreply, n}
  end
end
