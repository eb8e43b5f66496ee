defmodule Layouts do
  use Application
  def start(_, _), do: Layouts.Sup.start_link()
end

defmodule Layouts.Sup do
  use Supervisor
  def start_link, do: Supervisor.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    editors = for n <- 1..10, do: Supervisor.child_spec({Layouts.Editor, n}, id: {:editor, n})

    programs =
      for {name, script} <- [hyphens: "hyphens.pl", kerning: "kerning.pl", spelling: "spelling.pl"],
          do: Supervisor.child_spec({Layouts.Program, {name, script}}, id: name)

    Supervisor.init([Layouts.Pages, Layouts.Fonts] ++ programs ++ editors, strategy: :one_for_one)
  end
end

defmodule Layouts.Program do
  @moduledoc "a helper program: one line in, one line out"
  use GenServer
  def start_link({name, script}), do: GenServer.start_link(__MODULE__, script, name: name)
  def ask(name, line), do: GenServer.call(name, {:ask, line}, 30_000)

  def init(script) do
    port = Port.open({:spawn_executable, "/usr/bin/perl"}, [:binary, :exit_status, line: 65_536, args: [Path.join(System.fetch_env!("SCRIPTS"), script)]])
    {:ok, %{port: port, asked: 0}}
  end

  def handle_call({:ask, line}, _from, %{port: port} = s) do
    Port.command(port, [line, "\n"])

    receive do
      {^port, {:data, {:eol, answer}}} -> {:reply, answer, %{s | asked: s.asked + 1}}
      {^port, {:exit_status, n}} -> {:stop, {:program, n}, s}
    end
  end
end

defmodule Layouts.Pages do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def put(key, text), do: GenServer.cast(__MODULE__, {:put, key, text})
  def init(_), do: {:ok, %{}}
  def handle_cast({:put, key, text}, m), do: {:noreply, Map.put(m, key, byte_size(text))}
end

defmodule Layouts.Fonts do
  use Agent
  def start_link(_), do: Agent.start_link(fn -> for(c <- ?a..?z, into: %{}, do: {c, 400 + rem(c * 37, 300)}) end, name: __MODULE__)
  def widths, do: Agent.get(__MODULE__, & &1)
end

defmodule Layouts.Editor do
  @moduledoc "works on one section of the paper"
  use GenServer
  @syllables for c <- ~w(b d f g k l m n p r s t), v <- ~w(a e i o u), do: c <> v
  def start_link(n), do: GenServer.start_link(__MODULE__, n)

  def init(n) do
    Process.send_after(self(), :paragraph, 50 * n)
    {:ok, {n, 0, 0}}
  end

  def handle_info(:paragraph, {n, k, us}) do
    words = for _ <- 1..160, do: Enum.map_join(1..3, fn _ -> Enum.random(@syllables) end)
    text = Enum.join(words, " ")
    widths = Layouts.Fonts.widths()
    width = for <<c <- text>>, c != ?\s, reduce: 0, do: (w -> w + widths[c])

    {t, line} =
      :timer.tc(fn ->
        "ok" <> _ = Layouts.Program.ask(:spelling, text)
        text = Layouts.Program.ask(:hyphens, text)
        Layouts.Program.ask(:kerning, "#{width} #{text}")
      end)

    Layouts.Pages.put({n, rem(k, 100)}, line)
    Process.send_after(self(), :paragraph, 100)
    {:noreply, {n, k + 1, div(us * 9 + t, 10)}}
  end
end
