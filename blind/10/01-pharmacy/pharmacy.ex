defmodule Pharmacy.Application do
  use Application

  def start(_, _) do
    children = [
      {Registry, keys: :unique, name: Pharmacy.Baskets},
      {DynamicSupervisor, name: Pharmacy.BasketSupervisor},
      Pharmacy.Stock,
      Pharmacy.Interactions,
      {Task.Supervisor, name: Pharmacy.Tasks},
      {Task.Supervisor, name: Pharmacy.Connections},
      Pharmacy.Listener
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Pharmacy.Supervisor)
  end
end

defmodule Pharmacy.Stock do
  @moduledoc "What is on the shelves."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def count(drug), do: GenServer.call(__MODULE__, {:count, drug})
  def init(_), do: {:ok, Map.new(0..4999, &{"d#{&1}", for(b <- 1..40, do: {b, rem(&1 * b, 17)})})}

  def handle_call({:count, drug}, _, s) do
    batches = Map.get(s, drug, [])
    ordered = Enum.sort_by(batches ++ Enum.map(batches, fn {b, k} -> {b + 40, k} end), fn {b, k} -> {-k, rem(b * 31, 97)} end)
    {:reply, Enum.reduce(ordered, 0, fn {_, k}, a -> a + k end), s}
  end
end

defmodule Pharmacy.Interactions do
  @moduledoc "Which drugs must not be taken together."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def check(a, b), do: GenServer.call(__MODULE__, {:check, a, b})

  def init(_) do
    {:ok, for(a <- 0..299, b <- 0..99, into: %{}, do: {{"d#{a}", "d#{b * 3}"}, {rem(a * b, 5), "note #{a} #{b}"}})}
  end

  def handle_call({:check, a, b}, _, s), do: {:reply, Map.get(s, {a, b}, {0, ""}), s}
end

defmodule Pharmacy.Basket do
  @moduledoc "A basket; given up after 20 s."
  use GenServer, restart: :temporary

  def start_link(id), do: GenServer.start_link(__MODULE__, id, name: {:via, Registry, {Pharmacy.Baskets, id}})

  def put(id, drug) do
    case DynamicSupervisor.start_child(Pharmacy.BasketSupervisor, {__MODULE__, id}) do
      {:ok, pid} -> GenServer.call(pid, {:put, drug})
      {:error, {:already_started, pid}} -> GenServer.call(pid, {:put, drug})
    end
  end

  def init(id) do
    Process.send_after(self(), :close, 20_000)
    {:ok, {id, []}}
  end

  def handle_call({:put, drug}, _, {id, ds}), do: {:reply, length(ds) + 1, {id, [drug | ds]}}
  def handle_info(:close, s), do: {:stop, :normal, s}
end

defmodule Pharmacy.Listener do
  @moduledoc "TCP front of the pharmacies"
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
    {:ok, pid} = Task.Supervisor.start_child(Pharmacy.Connections, fn -> receive do: (:go -> Pharmacy.Connection.serve(s)) end)
    case :gen_tcp.controlling_process(s, pid) do
      :ok -> send(pid, :go)
      _ -> Process.exit(pid, :kill)
    end
    accept(l)
  end
end

defmodule Pharmacy.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [Pharmacy.Api.answer(String.split(line)), ?\n])
        serve(s)
      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Pharmacy.Api do
  def answer(words) do
    Task.Supervisor.async_nolink(Pharmacy.Tasks, __MODULE__, :work, [words]) |> Task.await(10_000)
  end

  def work(["stock", drug]), do: "stock #{Pharmacy.Stock.count(drug)}"

  def work(["check", a, b]) do
    {level, note} = Pharmacy.Interactions.check(a, b)
    _ = Pharmacy.Stock.count(a)
    "level #{level} #{note}"
  end

  def work(["basket", id, drug]) do
    k = Pharmacy.Stock.count(drug)
    "basket #{Pharmacy.Basket.put(id, drug)} #{k}"
  end
end
