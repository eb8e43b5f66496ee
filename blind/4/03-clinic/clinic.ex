defmodule Clinic.Application do
  use Application
  def start(_, _) do
    children = [
      {Registry, keys: :unique, name: Clinic.Rooms},
      Clinic.Waiting,
      Clinic.Audit,
      {Task.Supervisor, name: Clinic.Desks},
      Clinic.Listener
    ]
    Supervisor.start_link(children, strategy: :one_for_one, name: Clinic.Supervisor)
  end
end

defmodule Clinic.Form do
  @moduledoc "Checks of what is typed in at the desks"
  @name ~r/^(?:[[:alpha:]]+[ '-]?)+$/u
  @phone ~r/^\+?[0-9 ]{5,20}$/

  def valid?("name", v), do: Regex.match?(@name, v)
  def valid?("phone", v), do: Regex.match?(@phone, v)
  def valid?("visit", v), do: String.length(v) < 40
end

defmodule Clinic.Waiting do
  @moduledoc "The waiting room: in at one end, out at the other"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def come(p), do: GenServer.call(__MODULE__, {:come, p})
  def init(_), do: {:ok, :queue.new()}
  def handle_call({:come, p}, _, q) do
    q = :queue.in(p, q)
    q = if :queue.len(q) > 200, do: :queue.drop(q), else: q
    {:reply, :queue.len(q), q}
  end
end

defmodule Clinic.Audit do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def note(k), do: GenServer.cast(__MODULE__, {:note, k})
  def init(_), do: {:ok, %{}}
  def handle_cast({:note, k}, s), do: {:noreply, Map.update(s, k, 1, &(&1 + 1))}
  def handle_call(:all, _, s), do: {:reply, s, s}
end

defmodule Clinic.Listener do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def init(_) do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, backlog: 512, nodelay: true])
    {:ok, port} = :inet.port(l)
    File.write!(System.get_env("PORT_FILE"), Integer.to_string(port))
    spawn_link(fn -> accept(l) end)
    {:ok, l}
  end
  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Clinic.Desks, Clinic.Desk, :serve, [s])
    :gen_tcp.controlling_process(s, pid)
    accept(l)
  end
end

defmodule Clinic.Desk do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        [kind, value] = String.split(String.trim_trailing(line), " ", parts: 2)
        answer = handle(kind, value)
        Clinic.Audit.note({kind, answer})
        :gen_tcp.send(s, "#{answer}\n")
        serve(s)
      _ -> :ok
    end
  end

  defp handle(kind, value) do
    if Clinic.Form.valid?(kind, value) do
      if kind == "visit", do: Clinic.Waiting.come(value)
      :ok
    else
      :wrong
    end
  end
end
