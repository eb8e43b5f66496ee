defmodule Boxoffice.Application do
  use Application

  def start(_, _) do
    children = [Boxoffice.Seats, Boxoffice.Tracing, {Task.Supervisor, name: Boxoffice.Connections}, Boxoffice.Listener]
    Supervisor.start_link(children, strategy: :one_for_one, name: Boxoffice.Supervisor)
  end
end

defmodule Boxoffice.Seats do
  @moduledoc "Seats of the shows."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def free(show), do: 800 - :ets.select_count(__MODULE__, [{{{show, :_}, :sold}, [], [true]}])
  def set(show, seat, to), do: GenServer.call(__MODULE__, {:set, show, seat, to})

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :protected, read_concurrency: true])
    {:ok, 0}
  end

  def handle_call({:set, show, seat, to}, _, n) do
    # sold seats of yesterday's shows are forgotten
    if rem(n, 2000) == 1999, do: :ets.delete_all_objects(__MODULE__)
    :ets.insert(__MODULE__, {{show, seat}, to})
    {:reply, :ok, n + 1}
  end
end

defmodule Boxoffice.Trace do
  @moduledoc "Spans of one request."

  def start(name), do: Process.put(:trace, [{name, System.system_time(:microsecond)}])

  def span(name, f) do
    t = System.system_time(:microsecond)
    r = f.()
    Process.put(:trace, [{name, t, System.system_time(:microsecond) - t} | Process.get(:trace)])
    r
  end

  def finish do
    Boxoffice.Tracing.send_trace(Process.delete(:trace))
  end
end

defmodule Boxoffice.Tracing do
  @moduledoc "Sends the traces to the agent of the host."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def send_trace(t), do: GenServer.call(__MODULE__, {:send_trace, t}, :infinity)

  def init(_), do: {:ok, %{socket: connect(), sent: 0}}

  def handle_call({:send_trace, t}, _, s) do
    :ok = :gen_tcp.send(s.socket, :erlang.term_to_binary(Enum.reverse(t)))

    case :gen_tcp.recv(s.socket, 0, 5000) do
      {:ok, "ok"} -> {:reply, :ok, %{s | sent: s.sent + 1}}
      {:error, _} -> {:reply, :error, %{s | socket: connect()}}
    end
  end

  defp connect do
    port = System.fetch_env!("AGENT_FILE") |> File.read!() |> String.to_integer()
    {:ok, socket} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, packet: 4, active: false, nodelay: true])
    socket
  end
end

defmodule Boxoffice.Listener do
  @moduledoc "TCP front of the box office"
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
    {:ok, pid} = Task.Supervisor.start_child(Boxoffice.Connections, fn -> receive do: (:go -> Boxoffice.Connection.serve(s)) end)
    case :gen_tcp.controlling_process(s, pid) do
      :ok -> send(pid, :go)
      _ -> Process.exit(pid, :kill)
    end
    accept(l)
  end
end

defmodule Boxoffice.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [Boxoffice.Api.answer(String.split(line)), ?\n])
        serve(s)
      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Boxoffice.Api do
  import Boxoffice.Trace

  def answer([what | args]) do
    start(what)
    r = do_answer(what, args)
    finish()
    r
  end

  defp do_answer("free", [show]), do: span("seats.free", fn -> "free #{Boxoffice.Seats.free(show)}" end)

  defp do_answer("hold", [show, seat]) do
    span("seats.hold", fn -> Boxoffice.Seats.set(show, seat, :held) end)
    "held"
  end

  defp do_answer("sell", [show, seat]) do
    span("seats.sell", fn -> Boxoffice.Seats.set(show, seat, :sold) end)
    span("receipt", fn -> :crypto.hash(:sha256, show <> seat) |> Base.encode16() end)
    "sold"
  end
end
