defmodule Kiosk.Application do
  use Application

  def start(_type, _args) do
    children = [
      Kiosk.Stats,
      Kiosk.Paper,
      {DynamicSupervisor, name: Kiosk.Printers, max_restarts: 1000, max_seconds: 5},
      {Task.Supervisor, name: Kiosk.Jobs},
      {Task.Supervisor, name: Kiosk.Connections},
      Kiosk.Park,
      {Task, fn -> Kiosk.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Kiosk.Supervisor)
  end
end

defmodule Kiosk.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: 4, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 256])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Kiosk.Connections, fn -> Kiosk.Connection.serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end
end

defmodule Kiosk.Connection do
  @moduledoc "One picture per connection. Files that cannot be read let their job crash; that is meant so."
  def serve(s) do
    with {:ok, picture} <- :gen_tcp.recv(s, 0, 20_000) do
      Kiosk.Stats.count(:pictures)
      job = Task.Supervisor.async_nolink(Kiosk.Jobs, Kiosk.Job, :run, [picture])

      answer =
        case Task.yield(job, 10_000) || Task.shutdown(job, :brutal_kill) do
          {:ok, n} -> "printed #{n}"
          {:exit, _} -> Kiosk.Stats.count(:unreadable) && "unreadable"
          nil -> "too late"
        end

      :gen_tcp.send(s, answer)
    end

    :gen_tcp.close(s)
  end
end

defmodule Kiosk.Job do
  def run(picture) do
    <<"PIC", w::16, h::16, crc::32, pixels::binary>> = picture
    ^crc = :erlang.crc32(pixels)
    lines = for <<line::binary-size(w) <- pixels>>, do: shade(line)
    Kiosk.Paper.use(h)
    length(lines)
  end

  defp shade(line), do: for(<<p <- line>>, into: <<>>, do: <<div(p * 3, 4)>>)
end

defmodule Kiosk.Park do
  @moduledoc "The 24 printers. Their driver gives up now and then; the supervisor starts it again."
  use Task, restart: :transient
  def start_link(_), do: Task.start_link(fn -> for n <- 1..24, do: {:ok, _} = DynamicSupervisor.start_child(Kiosk.Printers, {Kiosk.Printer, n}) end)
end

defmodule Kiosk.Printer do
  use GenServer
  def start_link(n), do: GenServer.start_link(__MODULE__, n)

  def init(n) do
    Process.send_after(self(), :status, 500 + :rand.uniform(1000))
    {:ok, n}
  end

  def handle_info(:status, n) do
    Kiosk.Stats.count(:status)
    if :rand.uniform(40) == 1, do: exit(:paper_jam)
    Process.send_after(self(), :status, 1000)
    {:noreply, n}
  end
end

defmodule Kiosk.Paper do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def use(h), do: GenServer.cast(__MODULE__, {:use, h})
  def init(_), do: {:ok, 0}
  def handle_cast({:use, h}, n), do: {:noreply, rem(n + h, 1_000_000)}
end

defmodule Kiosk.Stats do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def count(what), do: :ets.update_counter(:kiosk_stats, what, 1, {what, 0})

  def init(_) do
    :ets.new(:kiosk_stats, [:named_table, :public, write_concurrency: true])
    {:ok, nil}
  end
end
