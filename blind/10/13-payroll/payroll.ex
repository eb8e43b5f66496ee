defmodule Payroll.Application do
  use Application

  def start(_, _) do
    children =
      [Payroll.Directory, Payroll.Board, {Task.Supervisor, name: Payroll.Connections}, Payroll.Listener] ++
        for(i <- 0..9, do: Supervisor.child_spec({Payroll.Office, i}, id: {:office, i}))

    Supervisor.start_link(children, strategy: :one_for_one, name: Payroll.Supervisor)
  end
end

defmodule Payroll.Directory do
  @moduledoc "Employees, by number."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def find(i), do: :ets.lookup(__MODULE__, i)

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :protected, read_concurrency: true])
    for i <- 0..39_999, do: :ets.insert(__MODULE__, {i, "Employee #{i}", rem(i, 10), 2000 + rem(i * 37, 3000)})
    {:ok, nil}
  end
end

defmodule Payroll.Statements do
  @moduledoc "The monthly statements of an office."

  def run(office) do
    lines =
      for i <- office..39_999//10, day <- 1..31 do
        [{_, name, _, pay}] = Payroll.Directory.find(i)
        %{employee: i, name: name, day: day, hours: 7 + rem(i + day, 3), pay: div(pay, 31), notes: ["day #{day}", {:rate, pay * 1.0 / 160}]}
      end

    by_employee = Enum.group_by(lines, & &1.employee)

    statements =
      for {i, days} <- by_employee do
        %{employee: i, hours: Enum.sum(Enum.map(days, & &1.hours)), total: Enum.sum(Enum.map(days, & &1.pay)), days: Enum.sort_by(days, & &1.day)}
      end

    sorted = Enum.sort_by(statements, & &1.total)
    %{count: length(sorted), total: Enum.sum(Enum.map(sorted, & &1.total)), top: hd(Enum.reverse(sorted)).employee}
  end
end

defmodule Payroll.Office do
  @moduledoc "One office: runs its statements each quarter of an hour, knows the result of the last run."
  use GenServer

  def start_link(i), do: GenServer.start_link(__MODULE__, i, name: name(i))
  def name(i), do: :"payroll_office_#{i}"
  def last(i), do: GenServer.call(name(i), :last, 30_000)

  def init(i) do
    Process.send_after(self(), :run, 1000 + i * 900)
    {:ok, %{office: i, runs: 0, last: nil}}
  end

  def handle_call(:last, _, s), do: {:reply, s.last, s}

  def handle_info(:run, s) do
    Process.send_after(self(), :run, 15 * 60 * 1000)
    {:noreply, %{s | runs: s.runs + 1, last: Payroll.Statements.run(s.office)}}
  end
end

defmodule Payroll.Board do
  @moduledoc "Shows the offices' last runs, asks them now and then."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :look, 5000)
    {:ok, %{}}
  end

  def handle_info(:look, s) do
    Process.send_after(self(), :look, 20_000)
    {:noreply, Map.merge(s, Map.new(0..9, &{&1, Payroll.Office.last(&1)}))}
  end
end

defmodule Payroll.Listener do
  @moduledoc "TCP front of the payroll service"
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
    {:ok, pid} = Task.Supervisor.start_child(Payroll.Connections, fn -> receive do: (:go -> Payroll.Connection.serve(s)) end)
    case :gen_tcp.controlling_process(s, pid) do
      :ok -> send(pid, :go)
      _ -> Process.exit(pid, :kill)
    end
    accept(l)
  end
end

defmodule Payroll.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [Payroll.Api.answer(String.split(line)), ?\n])
        serve(s)
      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Payroll.Api do
  def answer(["who", i]) do
    case Payroll.Directory.find(String.to_integer(i)) do
      [{_, name, office, _}] -> "is #{name}, office #{office}"
      [] -> "unknown"
    end
  end

  def answer(["office", i]) do
    case Payroll.Office.last(String.to_integer(i)) do
      nil -> "pending"
      %{count: c, total: t} -> "done #{c} #{t}"
    end
  end
end
