defmodule Mailer.Application do
  use Application

  def start(_type, _args) do
    relays = for name <- [:north, :south, :east, :west], do: Supervisor.child_spec({Mailer.Relay, name}, id: name)

    children = [
      Mailer.Outbox,
      Mailer.Templates,
      # "never give up": a relay may be away for hours
      %{id: Mailer.Relays, type: :supervisor, start: {Supervisor, :start_link, [relays, [strategy: :one_for_one, max_restarts: 1_000_000, max_seconds: 1, name: Mailer.Relays]]}},
      Mailer.Portal
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Mailer.Supervisor)
  end
end

defmodule Mailer.Outbox do
  @moduledoc "Mails that wait for their relay; at most 5000 each"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def put(relay, mail), do: GenServer.cast(__MODULE__, {:put, relay, mail})
  def take(relay), do: GenServer.call(__MODULE__, {:take, relay})
  def init(_), do: {:ok, %{}}

  def handle_cast({:put, r, m}, s) do
    {n, q} = Map.get(s, r, {0, :queue.new()})
    {:noreply, if(n < 5000, do: Map.put(s, r, {n + 1, :queue.in(m, q)}), else: s)}
  end

  def handle_call({:take, r}, _from, s) do
    case Map.get(s, r, {0, :queue.new()}) do
      {0, _} ->
        {:reply, nil, s}

      {n, q} ->
        {{:value, m}, q} = :queue.out(q)
        {:reply, m, Map.put(s, r, {n - 1, q})}
    end
  end

  def handle_call(:sizes, _from, s), do: {:reply, Map.new(s, fn {r, {n, _}} -> {r, n} end), s}
end

defmodule Mailer.Templates do
  use Agent
  def start_link(_), do: Agent.start_link(fn -> for(i <- 1..50, into: %{}, do: {i, String.duplicate("Dear @name, ", 40)}) end, name: __MODULE__)
  def fill(i, name), do: Agent.get(__MODULE__, &Map.fetch!(&1, i)) |> String.replace("@name", name)
end

defmodule Mailer.Relay do
  @moduledoc "The connection to one relay"
  use GenServer

  def start_link(name), do: GenServer.start_link(__MODULE__, name, name: :"mailer_relay_#{name}")

  def init(name), do: {:ok, %{name: name, socket: nil, sent: 0}, {:continue, :connect}}

  def handle_continue(:connect, s) do
    [port] = for [n, p] <- Enum.map(String.split(System.fetch_env!("RELAYS")), &String.split(&1, "=")), n == to_string(s.name), do: String.to_integer(p)
    {:ok, socket} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, packet: :line, active: false, nodelay: true])
    {:ok, "220" <> _} = :gen_tcp.recv(socket, 0, 5000)
    send(self(), :work)
    {:noreply, %{s | socket: socket}}
  end

  def handle_info(:work, s) do
    case Mailer.Outbox.take(s.name) do
      nil ->
        Process.send_after(self(), :work, 50)
        {:noreply, s}

      {to, text} ->
        :ok = :gen_tcp.send(s.socket, ["MAIL ", to, " ", Integer.to_string(byte_size(text)), "\n"])
        {:ok, "250" <> _} = :gen_tcp.recv(s.socket, 0, 5000)
        send(self(), :work)
        {:noreply, %{s | sent: s.sent + 1}}
    end
  end
end

defmodule Mailer.Portal do
  @moduledoc "Stands for the portal that wants mails sent"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :mail, 500)
    {:ok, 0}
  end

  def handle_info(:mail, n) do
    Process.send_after(self(), :mail, 15)
    relay = Enum.at([:north, :south, :east, :west], rem(n, 4))
    Mailer.Outbox.put(relay, {"user#{n}@#{relay}.example", Mailer.Templates.fill(rem(n, 50) + 1, "user #{n}")})
    {:noreply, n + 1}
  end
end
