defmodule Surveys.Application do
  use Application

  def start(_type, _args) do
    children = [
      Surveys.Reports,
      Surveys.Collector,
      {Task.Supervisor, name: Surveys.Evaluations},
      Surveys.Batches,
      {Task.Supervisor, name: Surveys.Connections},
      {Task, fn -> Surveys.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Surveys.Supervisor)
  end
end

defmodule Surveys.Reports do
  @moduledoc "Rendered reports (about 100 kB each), at most 3000: a new one takes the place of the oldest."
  use GenServer
  @most 3000
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:surveys_reports, [:named_table, :public, read_concurrency: true])
    for i <- 0..(@most - 1), do: :ets.insert(:surveys_reports, {i, render(i)})
    {:ok, @most}
  end

  def get(i), do: :ets.lookup_element(:surveys_reports, rem(i, @most), 2)
  def renew, do: GenServer.call(__MODULE__, :renew)

  def handle_call(:renew, _, n) do
    :ets.insert(:surveys_reports, {rem(n, @most), render(n)})
    {:reply, n, n + 1}
  end

  defp render(i), do: :binary.copy(<<"report ", i::64, " lorem ipsum dolor sit amet ">>, 2400)
end

defmodule Surveys.Collector do
  @moduledoc "Sums up the results of an evaluation"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def add(question, value), do: GenServer.cast(__MODULE__, {:add, question, value})
  def sums, do: GenServer.call(__MODULE__, :sums)
  def init(_), do: {:ok, %{}}
  def handle_cast({:add, q, v}, s), do: {:noreply, Map.update(s, q, {1, v}, fn {n, t} -> {n + 1, t + v} end)}
  def handle_call(:sums, _, s), do: {:reply, s, s}
end

defmodule Surveys.Batches do
  @moduledoc "Every seven seconds the answers that have come in are evaluated, each in a task of its own."
  use GenServer
  @every 7_000
  @answers 1_800
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :evaluate, 1000)
    {:ok, 0}
  end

  def handle_info(:evaluate, n) do
    Process.send_after(self(), :evaluate, @every)
    for i <- 1..@answers, do: Task.Supervisor.start_child(Surveys.Evaluations, fn -> evaluate(n + i) end)
    {:noreply, n + @answers}
  end

  defp evaluate(i) do
    words = for w <- 1..60, do: :erlang.phash2({i, w}, 5000)
    score = words |> Enum.sort() |> Enum.chunk_every(7) |> Enum.map(&Enum.sum/1) |> Enum.max()
    for q <- 1..5, do: Surveys.Collector.add(rem(i, 40) * 10 + q, rem(score, q + 9))
  end
end

defmodule Surveys.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 64, nodelay: true])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Surveys.Connections, fn -> serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end

  defp serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [answer(String.split(String.trim(line), " ")), "\n"])
        serve(s)

      {:error, _} ->
        :gen_tcp.close(s)
    end
  end

  defp answer(["report", i]), do: Surveys.Reports.get(String.to_integer(i))
  defp answer(["renew"]), do: "#{Surveys.Reports.renew()}"
  defp answer(["sums"]), do: "#{map_size(Surveys.Collector.sums())}"
end
