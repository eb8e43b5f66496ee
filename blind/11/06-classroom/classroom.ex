defmodule Classroom.Application do
  use Application

  def start(_, _) do
    children = [
      Classroom.Marks,
      {DynamicSupervisor, name: Classroom.LessonSupervisor},
      {Task.Supervisor, name: Classroom.Connections},
      Classroom.Listener
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Classroom.Supervisor)
  end
end

defmodule Classroom.Marks do
  @moduledoc "Marks and plans of the pupils."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def mark(pupil), do: GenServer.call(__MODULE__, {:mark, pupil})

  def plan(pupil) do
    case :ets.lookup(__MODULE__, pupil) do
      [{_, plan, _}] -> plan
      [] -> []
    end
  end

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :protected])
    for p <- 0..2999, do: :ets.insert(__MODULE__, {"p#{p}", for(h <- 1..30, do: {h, rem(p * h, 12)}), 0})
    {:ok, nil}
  end

  def handle_call({:mark, pupil}, _, s), do: {:reply, :ets.update_counter(__MODULE__, pupil, {3, 1}), s}
end

defmodule Classroom.Lesson do
  @moduledoc "A lesson of two seconds (a short school), with a blackboard and a register of attendance."
  use GenServer, restart: :temporary

  def start_link(id), do: GenServer.start_link(__MODULE__, id)

  def open(id) do
    {:ok, pid} = DynamicSupervisor.start_child(Classroom.LessonSupervisor, {__MODULE__, id})
    GenServer.call(pid, :room)
  end

  def init(id) do
    {:ok, board} = Classroom.Blackboard.start_link(id)
    {:ok, attendance} = Classroom.Attendance.start_link(id)
    Process.send_after(self(), :bell, 2000)
    {:ok, %{id: id, board: board, attendance: attendance}}
  end

  def handle_call(:room, _, s) do
    Classroom.Blackboard.write(s.board, "lesson #{s.id}")
    Classroom.Attendance.seen(s.attendance, "teacher")
    {:reply, s.id, s}
  end

  def handle_info(:bell, s), do: {:stop, :normal, s}
end

defmodule Classroom.Blackboard do
  use GenServer

  def start_link(id), do: GenServer.start_link(__MODULE__, id)
  def write(pid, text), do: GenServer.cast(pid, {:write, text})

  def init(id) do
    Process.send_after(self(), :autosave, 4000)
    {:ok, %{id: id, canvas: for(y <- 1..60, do: for(x <- 1..40, do: {x, y, 0})), texts: []}}
  end

  def handle_cast({:write, text}, s), do: {:noreply, %{s | texts: [text | s.texts]}}

  def handle_info(:autosave, s) do
    Process.send_after(self(), :autosave, 4000)
    {:noreply, s}
  end
end

defmodule Classroom.Attendance do
  use GenServer

  def start_link(id), do: GenServer.start_link(__MODULE__, id)
  def seen(pid, who), do: GenServer.cast(pid, {:seen, who})
  def init(id), do: {:ok, %{id: id, seen: []}}
  def handle_cast({:seen, who}, s), do: {:noreply, %{s | seen: [{who, System.os_time()} | s.seen]}}
end

defmodule Classroom.Listener do
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
    {:ok, pid} = Task.Supervisor.start_child(Classroom.Connections, fn -> receive do: (:go -> Classroom.Connection.serve(s)) end)
    case :gen_tcp.controlling_process(s, pid) do
      :ok -> send(pid, :go)
      _ -> Process.exit(pid, :kill)
    end
    accept(l)
  end
end

defmodule Classroom.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [Classroom.Api.answer(String.split(line)), ?\n])
        serve(s)
      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Classroom.Api do
  def answer(["lesson", id]), do: ["lesson ", Classroom.Lesson.open(id)]
  def answer(["mark", p]), do: "mark #{Classroom.Marks.mark(p)}"
  def answer(["plan", p]), do: ["plan ", Enum.map_join(Classroom.Marks.plan(p), ",", fn {h, c} -> "#{h}:#{c}" end)]
end
