defmodule Clinics.Application do
  use Application

  def start(_type, _args) do
    children = [
      Clinics.Roster,
      {Registry, keys: :unique, name: Clinics.Names},
      {DynamicSupervisor, name: Clinics.Rooms},
      {Task.Supervisor, name: Clinics.Connections},
      {Task, fn -> Clinics.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Clinics.Supervisor)
  end
end

defmodule Clinics.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 256])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Clinics.Connections, fn -> Clinics.Connection.serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end
end

defmodule Clinics.Connection do
  def serve(s, room \\ nil) do
    case :gen_tcp.recv(s, 0) do
      {:ok, "enter " <> patient} ->
        {:ok, room} = DynamicSupervisor.start_child(Clinics.Rooms, {Clinics.Room, String.trim(patient)})
        :gen_tcp.send(s, "in\n")
        serve(s, room)

      {:ok, "say " <> text} ->
        n = Clinics.Room.say(room, text)
        :gen_tcp.send(s, "#{n}\n")
        serve(s, room)

      {:ok, "doctor\n"} ->
        :gen_tcp.send(s, [Clinics.Roster.on_duty(), "\n"])
        serve(s, room)

      {:error, _} ->
        room && Clinics.Room.leave(room)
    end
  end
end

defmodule Clinics.Room do
  @moduledoc "A consultation. Begins with the patient's file."
  use GenServer, restart: :temporary
  def start_link(patient), do: GenServer.start_link(__MODULE__, patient, name: {:via, Registry, {Clinics.Names, patient}})
  def say(room, text), do: GenServer.call(room, {:say, text})
  def leave(room), do: GenServer.cast(room, :leave)

  def init(patient) do
    {:ok, %{patient: patient, file: Clinics.Files.fetch(patient), said: []}}
  end

  def handle_call({:say, text}, _, s), do: {:reply, length(s.said) + 1, %{s | said: [text | s.said]}}
  def handle_cast(:leave, s), do: {:stop, :normal, s}
end

defmodule Clinics.Files do
  @moduledoc "The patients' files lie in another house."
  def fetch(patient) do
    {:ok, s} = :gen_tcp.connect({127, 0, 0, 1}, String.to_integer(System.fetch_env!("FILES_PORT")), [:binary, packet: :line, active: false])
    :ok = :gen_tcp.send(s, [patient, "\n"])
    {:ok, file} = :gen_tcp.recv(s, 0, 10_000)
    :gen_tcp.close(s)
    file
  end
end

defmodule Clinics.Roster do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def on_duty, do: GenServer.call(__MODULE__, :on_duty)

  def init(_) do
    :timer.send_interval(5000, :change)
    {:ok, 1}
  end

  def handle_call(:on_duty, _, n), do: {:reply, "dr#{n}", n}
  def handle_info(:change, n), do: {:noreply, rem(n, 30) + 1}
end
