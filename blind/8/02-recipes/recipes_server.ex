defmodule Recipes.Listener do
  @moduledoc "Accepts the connections; each is served by a task of its own."
  def child_spec(_), do: %{id: __MODULE__, start: {__MODULE__, :start_link, []}}
  def start_link, do: :proc_lib.start_link(__MODULE__, :init, [])

  def init do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, reuseaddr: true, backlog: 1024, ip: {127, 0, 0, 1}, buffer: 65536, nodelay: true])
    {:ok, port} = :inet.port(l)
    Process.register(self(), __MODULE__)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    :proc_lib.init_ack({:ok, self()})
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Recipes.Connections, Recipes.Connection, :init, [s])
    if :gen_tcp.controlling_process(s, pid) == :ok, do: send(pid, :go)
    accept(l)
  end
end

defmodule Recipes.Connection do
  @moduledoc "A line is a request, a line is the answer."
  def init(s) do
    receive do
      :go -> serve(s)
    after
      5000 -> :ok
    end
  end

  defp serve(s) do
    with {:ok, line} <- :gen_tcp.recv(s, 0),
         :ok <- :gen_tcp.send(s, [Recipes.Api.handle(String.split(line)), ?\n]) do
      serve(s)
    else
      _ -> :gen_tcp.close(s)
    end
  end
end

defmodule Recipes.App do
  use Application

  def start(_, _) do
    children = [Recipes.Titles, Recipes.Cache] ++ [{Task.Supervisor, name: Recipes.Connections}, Recipes.Listener]
    Supervisor.start_link(children, strategy: :one_for_one, name: Recipes.Supervisor)
  end
end
