defmodule Bookkeeping.Application do
  use Application

  def start(_, _) do
    children = [
      Bookkeeping.Accounts,
      {Task.Supervisor, name: Bookkeeping.Connections},
      Bookkeeping.Listener
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Bookkeeping.Supervisor)
  end
end

defmodule Bookkeeping.Accounts do
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def add(account, amount), do: :ets.update_counter(__MODULE__, account, {2, amount}, {account, 0})

  def balance(account) do
    case :ets.lookup(__MODULE__, account) do
      [{_, b}] -> b
      [] -> 0
    end
  end

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :public, write_concurrency: true])
    {:ok, nil}
  end
end

defmodule Bookkeeping.Steps do
  @moduledoc "Named steps that are run one after the other, so that the failed one can be told by its name."
  def new, do: []
  def run(steps, name, fun) when is_atom(name), do: [{name, fun} | steps]

  def commit(steps) do
    steps
    |> Enum.reverse()
    |> Enum.reduce_while({:ok, %{}}, fn {name, fun}, {:ok, done} ->
      case fun.(done) do
        {:ok, r} -> {:cont, {:ok, Map.put(done, name, r)}}
        {:error, why} -> {:halt, {:error, name, why}}
      end
    end)
  end
end

defmodule Bookkeeping.Import do
  alias Bookkeeping.{Accounts, Steps}

  def statement(id, lines) do
    lines
    |> Enum.with_index()
    |> Enum.reduce(Steps.new(), fn {line, i}, steps ->
      [account, amount] = String.split(line, ":")
      account = :binary.copy(account)
      Steps.run(steps, String.to_atom("booking_#{id}_#{i}"), fn _ -> {:ok, Accounts.add(account, String.to_integer(amount))} end)
    end)
    |> Steps.commit()
  end
end

defmodule Bookkeeping.Listener do
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
    {:ok, pid} = Task.Supervisor.start_child(Bookkeeping.Connections, fn -> receive do: (:go -> Bookkeeping.Connection.serve(s)) end)
    case :gen_tcp.controlling_process(s, pid) do
      :ok -> send(pid, :go)
      _ -> Process.exit(pid, :kill)
    end
    accept(l)
  end
end

defmodule Bookkeeping.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [Bookkeeping.Api.answer(String.split(line)), ?\n])
        serve(s)
      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Bookkeeping.Api do
  def answer(["balance", account]), do: "balance #{Bookkeeping.Accounts.balance(account)}"

  def answer(["statement", id | lines]) do
    case Bookkeeping.Import.statement(id, lines) do
      {:ok, done} -> "booked #{map_size(done)}"
      {:error, name, _} -> "failed #{name}"
    end
  end
end
