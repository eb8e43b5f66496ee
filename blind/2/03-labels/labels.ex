defmodule Labels.Application do
  use Application

  def start(_type, _args) do
    children = [
      Labels.Counts,
      Labels.Recent,
      {Task.Supervisor, name: Labels.Connections},
      {Task, fn -> Labels.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Labels.Supervisor)
  end
end

defmodule Labels.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, recbuf: 65536])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Labels.Connections, fn -> Labels.Connection.serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end
end

defmodule Labels.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        event = Labels.Decoder.decode(String.trim(line))
        Labels.Counts.count(event)
        Labels.Recent.keep(event)
        serve(s)

      {:error, :closed} ->
        :ok
    end
  end
end

defmodule Labels.Decoder do
  @moduledoc "kind;shop;key=value;key=value...  ->  a map with atom keys, as the rules want it"

  def decode(line) do
    [kind, shop | rest] = String.split(line, ";")
    %{kind: kind, shop: shop, labels: labels(rest), at: System.system_time(:millisecond)}
  end

  def labels(pairs) do
    Map.new(pairs, fn p ->
      [k, v] = String.split(p, "=", parts: 2)
      {String.to_atom(k), v}
    end)
  end
end

defmodule Labels.Counts do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:labels_counts, [:named_table, :public, :set, write_concurrency: true])
    {:ok, nil}
  end

  def count(e) do
    :ets.update_counter(:labels_counts, {e.shop, e.kind}, 1, {{e.shop, e.kind}, 0})
    :ets.update_counter(:labels_counts, :all, 1, {:all, 0})
  end
end

defmodule Labels.Recent do
  @moduledoc "The last 2000 events, for the support's page."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:labels_recent, [:named_table, :public, :set, write_concurrency: true])
    :ets.insert(:labels_recent, {:next, 0})
    {:ok, nil}
  end

  def keep(e) do
    n = :ets.update_counter(:labels_recent, :next, 1)
    :ets.insert(:labels_recent, {rem(n, 2000), e})
  end
end
