defmodule Hooks.Application do
  use Application

  def start(_type, _args) do
    children = [
      Hooks.Log,
      {Task.Supervisor, name: Hooks.Deliveries},
      {DynamicSupervisor, name: Hooks.Endpoints, strategy: :one_for_one},
      {DynamicSupervisor, name: Hooks.Client.Supervisor, strategy: :one_for_one}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Hooks.Supervisor)
  end
end

defmodule Hooks.Client do
  @moduledoc """
  Our HTTP client: one process per connection. `open/2` gives the pid, the answer comes as
  `{:response, pid, status, body}` to the process that made the request.
  """
  use GenServer, restart: :temporary

  def open(host, port), do: DynamicSupervisor.start_child(Hooks.Client.Supervisor, {__MODULE__, {host, port}})
  def post(pid, path, body), do: GenServer.cast(pid, {:post, self(), path, body})
  def close(pid), do: GenServer.stop(pid)

  def start_link(to), do: GenServer.start_link(__MODULE__, to)

  def init({host, port}) do
    {:ok, s} = :gen_tcp.connect(host, port, [:binary, active: false, packet: :raw], 5000)
    {:ok, %{socket: s, to: nil, buffer: "", requests: 0}}
  end

  def handle_cast({:post, from, path, body}, st) do
    :ok = :gen_tcp.send(st.socket, ["POST ", path, " HTTP/1.1\r\nhost: hooks.example\r\ncontent-length: ", Integer.to_string(byte_size(body)), "\r\n\r\n", body])
    :inet.setopts(st.socket, active: :once)
    {:noreply, %{st | to: from, buffer: ""}}
  end

  def handle_info({:tcp, s, data}, %{socket: s} = st) do
    buffer = st.buffer <> data

    case String.split(buffer, "\r\n\r\n", parts: 2) do
      ["HTTP/1.1 " <> <<status::binary-size(3), _::binary>>, body] ->
        send(st.to, {:response, self(), String.to_integer(status), body})
        {:noreply, %{st | to: nil, buffer: "", requests: st.requests + 1}}

      _ ->
        :inet.setopts(s, active: :once)
        {:noreply, %{st | buffer: buffer}}
    end
  end

  def handle_info({:tcp_closed, _}, st), do: {:stop, :normal, st}
  def handle_info({:tcp_error, _, _}, st), do: {:stop, :normal, st}

  def terminate(_, st), do: :gen_tcp.close(st.socket)
end

defmodule Hooks.Delivery do
  @moduledoc "Brings one event to the customer's server."

  def deliver(port, customer, event) do
    {:ok, client} = Hooks.Client.open({127, 0, 0, 1}, port)
    Hooks.Client.post(client, "/hooks/#{customer}", event)

    receive do
      {:response, ^client, 200, _} -> Hooks.Log.add(customer, :delivered)
      {:response, ^client, status, _} -> Hooks.Log.add(customer, {:refused, status})
    after
      10_000 -> Hooks.Log.add(customer, :timeout)
    end
  end
end

defmodule Hooks.Endpoint do
  @moduledoc "One process per customer: collects what is to be delivered, in order."
  use GenServer, restart: :permanent

  def start_link({n, port}), do: GenServer.start_link(__MODULE__, {n, port})

  def init({n, port}) do
    Process.send_after(self(), :event, :rand.uniform(40_000))
    {:ok, %{n: n, port: port, events: []}}
  end

  def handle_info(:event, s) do
    event = ~s({"customer":#{s.n},"type":"order.paid","cents":#{:rand.uniform(90_000)}})
    {:ok, _} = Task.Supervisor.start_child(Hooks.Deliveries, fn -> Hooks.Delivery.deliver(s.port, s.n, event) end)
    Process.send_after(self(), :event, 30_000 + :rand.uniform(20_000))
    {:noreply, %{s | events: Enum.take([event | s.events], 20)}}
  end
end

defmodule Hooks.Log do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def add(customer, what), do: GenServer.cast(__MODULE__, {:add, customer, what})

  def init(_) do
    :ets.new(:hooks_log, [:named_table, :protected, :ordered_set])
    {:ok, 0}
  end

  # the last 5000
  def handle_cast({:add, customer, what}, n) do
    :ets.insert(:hooks_log, {n, customer, what})
    :ets.delete(:hooks_log, n - 5000)
    {:noreply, n + 1}
  end

  def handle_call(:count, _from, n), do: {:reply, n, n}
end

defmodule Hooks.Load do
  def start(customers, port) do
    for n <- 1..customers, do: {:ok, _} = DynamicSupervisor.start_child(Hooks.Endpoints, {Hooks.Endpoint, {n, port}})
  end
end
