defmodule Warranties.Application do
  use Application

  def start(_type, _args) do
    children = [
      Warranties.Contracts,
      Warranties.Claims,
      {Task.Supervisor, name: Warranties.Maintenance},
      Warranties.Janitor,
      {Task.Supervisor, name: Warranties.Connections},
      {Task, fn -> Warranties.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Warranties.Supervisor)
  end
end

defmodule Warranties.Contracts do
  @moduledoc "The contracts of the dealers: {{dealer, number}, contract}"
  use GenServer
  @dealers 400
  @each 40
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def dealers, do: @dealers

  def init(_) do
    :ets.new(:warranties_contracts, [:named_table, :public, :ordered_set, read_concurrency: true])
    for d <- 1..@dealers, n <- 1..@each, do: :ets.insert(:warranties_contracts, {{d, n}, contract(d, n)})
    {:ok, nil}
  end

  defp contract(d, n) do
    %{dealer: d, number: n, customer: "Customer #{d}-#{n}", product: "Device #{rem(d * n, 700)}", serial: "SN#{:erlang.phash2({d, n}, 9_999_999)}",
      from: {2023, rem(n, 12) + 1, 1}, months: 24, state: :open}
  end

  def find(d, n), do: :ets.lookup(:warranties_contracts, {d, n})
  def put(d, n, c), do: :ets.insert(:warranties_contracts, {{d, n}, c})
  def of_dealer(d), do: :ets.select(:warranties_contracts, [{{{d, :_}, :"$1"}, [], [:"$1"]}])
end

defmodule Warranties.Claims do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def file(d, n), do: GenServer.call(__MODULE__, {:file, d, n})
  def init(_), do: {:ok, {0, :queue.new()}}

  def handle_call({:file, d, n}, _, {no, q}) do
    q = :queue.in({no, d, n}, q)
    q = if :queue.len(q) > 500, do: :queue.drop(q), else: q
    {:reply, no, {no + 1, q}}
  end
end

defmodule Warranties.Janitor do
  @moduledoc "Every three seconds: has the contracts of all dealers looked over, in batches of ten dealers, a task for each batch."
  use GenServer
  require Logger
  @every 3_000
  @batch 10
  @longest 1_200

  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :run, @every)
    {:ok, %{tasks: %{}, runs: 0}}
  end

  def handle_info(:run, state) do
    started =
      for dealers <- Enum.chunk_every(1..Warranties.Contracts.dealers(), @batch), into: %{} do
        contracts = Enum.flat_map(dealers, &Warranties.Contracts.of_dealer/1)
        task = Task.Supervisor.async_nolink(Warranties.Maintenance, Warranties.Upkeep, :run, [dealers, contracts])
        Process.send_after(self(), {:too_long, task.pid}, @longest)
        {task.ref, contracts}
      end

    Process.send_after(self(), :run, @every)
    {:noreply, %{state | tasks: Map.merge(state.tasks, started), runs: state.runs + 1}}
  end

  def handle_info({:too_long, pid}, state) do
    Process.exit(pid, :kill)
    {:noreply, state}
  end

  # a task has done its batch
  def handle_info({ref, {:done, _changed}}, state) do
    Process.demonitor(ref, [:flush])
    {_contracts, tasks} = Map.pop(state.tasks, ref)
    {:noreply, %{state | tasks: tasks}}
  end

  def handle_info({:DOWN, ref, :process, _pid, :killed}, state) do
    contracts = Map.get(state.tasks, ref, [])
    Logger.warning("upkeep of #{length(contracts)} contracts took too long, next run will try again")
    {:noreply, %{state | tasks: state.tasks}}
  end

  def handle_info({:DOWN, _ref, :process, _pid, _reason}, state), do: {:noreply, state}
end

defmodule Warranties.Upkeep do
  @moduledoc "Expired contracts are moved to the archive of their dealer; the archives of some dealers are on the old, slow storage."

  def run(dealers, contracts) do
    expired = Enum.filter(contracts, fn c -> elem(c.from, 1) < 3 end)
    for d <- dealers, slow?(d), do: archive(d)
    {:done, length(expired)}
  end

  defp slow?(d), do: rem(d, 23) == 0
  # the storage's answer takes as long as it takes
  defp archive(_d), do: Process.sleep(2_500)
end

defmodule Warranties.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 64])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Warranties.Connections, fn -> serve(s) end)
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

  defp answer(["find", d, n]) do
    case Warranties.Contracts.find(String.to_integer(d), String.to_integer(n)) do
      [{_, c}] -> "#{c.customer};#{c.product};#{inspect(c.state)}"
      [] -> "none"
    end
  end

  defp answer(["claim", d, n]) do
    {d, n} = {String.to_integer(d), String.to_integer(n)}

    case Warranties.Contracts.find(d, n) do
      [{_, c}] ->
        no = Warranties.Claims.file(d, n)
        Warranties.Contracts.put(d, n, %{c | state: {:claimed, no}})
        "claim #{no}"

      [] ->
        "none"
    end
  end
end
