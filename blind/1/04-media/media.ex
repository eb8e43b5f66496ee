defmodule Media.Application do
  use Application

  @impl true
  def start(_type, _args) do
    children = [
      Media.Uploads,
      {Task.Supervisor, name: Media.Tasks},
      Media.PreviewQueue,
      Media.Janitor
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Media.Supervisor)
  end
end

defmodule Media.Preview do
  @moduledoc "Renders an uploaded drawing with the svg2png program."
  @timeout 3_000

  def render(path) do
    task =
      Task.Supervisor.async_nolink(Media.Tasks, fn ->
        System.cmd(System.fetch_env!("SVG2PNG"), ["--width", "320", path], stderr_to_stdout: true)
      end)

    case Task.yield(task, @timeout) || Task.shutdown(task, :brutal_kill) do
      {:ok, {_png, 0}} -> :ok
      {:ok, {_out, status}} -> {:error, {:exit_status, status}}
      nil -> {:error, :timeout}
    end
  end
end

defmodule Media.PreviewQueue do
  @moduledoc "Takes previews to be made, works on up to 8 at a time."
  use GenServer
  require Logger
  @max 8

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def enqueue(path), do: GenServer.cast(__MODULE__, {:enqueue, path})

  @impl true
  def init(_), do: {:ok, %{queue: :queue.new(), running: %{}}}

  @impl true
  def handle_cast({:enqueue, path}, s), do: {:noreply, next(%{s | queue: :queue.in(path, s.queue)})}

  @impl true
  def handle_info({:DOWN, ref, :process, _pid, _reason}, s) do
    {:noreply, next(%{s | running: Map.delete(s.running, ref)})}
  end

  defp next(s) do
    with true <- map_size(s.running) < @max, {{:value, path}, q} <- :queue.out(s.queue) do
      {:ok, pid} =
        Task.Supervisor.start_child(Media.Tasks, fn ->
          case Media.Preview.render(path) do
            :ok -> Media.Uploads.done(path)
            {:error, why} -> Media.Uploads.failed(path, why)
          end
        end)

      next(%{s | queue: q, running: Map.put(s.running, Process.monitor(pid), path)})
    else
      _ -> s
    end
  end
end

defmodule Media.Uploads do
  use GenServer
  require Logger

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def done(path), do: GenServer.cast(__MODULE__, {:done, path})
  def failed(path, why), do: GenServer.cast(__MODULE__, {:failed, path, why})
  def stats, do: GenServer.call(__MODULE__, :stats)

  @impl true
  def init(_), do: {:ok, %{done: 0, failed: 0}}

  @impl true
  def handle_call(:stats, _from, s), do: {:reply, s, s}

  @impl true
  def handle_cast({:done, path}, s) do
    File.rm(path)
    {:noreply, %{s | done: s.done + 1}}
  end

  def handle_cast({:failed, path, why}, s) do
    Logger.warning("no preview of #{Path.basename(path)}: #{inspect(why)}")
    File.rm(path)
    {:noreply, %{s | failed: s.failed + 1}}
  end
end

defmodule Media.Janitor do
  @moduledoc "Removes uploads that were forgotten."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  @impl true
  def init(_) do
    :timer.send_interval(10_000, :sweep)
    {:ok, nil}
  end

  @impl true
  def handle_info(:sweep, s) do
    dir = System.fetch_env!("UPLOAD_DIR")
    limit = System.os_time(:second) - 60

    for f <- File.ls!(dir), p = Path.join(dir, f), {:ok, st} <- [File.stat(p, time: :posix)], st.mtime < limit, do: File.rm(p)
    {:noreply, s}
  end
end
