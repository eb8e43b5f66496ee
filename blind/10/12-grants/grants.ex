defmodule Grants.Application do
  use Application

  def start(_, _) do
    children =
      [Grants.Store, Grants.Inbox] ++
        for(i <- 1..3, do: Supervisor.child_spec({Grants.Importer, i}, id: {:importer, i})) ++
        [{Task.Supervisor, name: Grants.Connections}, Grants.Listener]

    Supervisor.start_link(children, strategy: :one_for_one, name: Grants.Supervisor)
  end
end

defmodule Grants.Store do
  @moduledoc "What is known of the applications: number and sum of each fund."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def add(rows), do: GenServer.call(__MODULE__, {:add, rows})
  def fund(f), do: :ets.lookup(__MODULE__, f)

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :protected, read_concurrency: true])
    {:ok, 0}
  end

  def handle_call({:add, rows}, _, files) do
    for {_id, fund, amount} <- rows, do: :ets.update_counter(__MODULE__, fund, [{2, 1}, {3, amount}], {fund, 0, 0})
    {:reply, :ok, files + 1}
  end

  def handle_call(:files, _, files), do: {:reply, files, files}
end

defmodule Grants.Inbox do
  @moduledoc "Looks into the drop folder, gives the files to the importers."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def next, do: GenServer.call(__MODULE__, :next)

  def init(_), do: {:ok, %{drop: System.fetch_env!("DROP"), given: MapSet.new()}}

  def handle_call(:next, _, s) do
    files = s.drop |> File.ls!() |> Enum.filter(&String.ends_with?(&1, ".xml")) |> Enum.sort()
    given = MapSet.intersection(s.given, MapSet.new(files))

    case Enum.find(files, &(not MapSet.member?(given, &1))) do
      nil -> {:reply, :none, %{s | given: given}}
      f -> {:reply, {:file, Path.join(s.drop, f)}, %{s | given: MapSet.put(given, f)}}
    end
  end
end

defmodule Grants.Parser do
  @moduledoc "Reads the applications of a delivery."

  def parse(file) do
    {doc, _} = file |> File.read!() |> String.to_charlist() |> :xmerl_scan.string(quiet: true)

    for app <- :xmerl_xpath.string(~c"/applications/application", doc) do
      {attribute(app), text(app, ~c"fund/text()"), amount(app)}
    end
  end

  defp attribute(app) do
    [a] = :xmerl_xpath.string(~c"@id", app)
    a |> elem(8) |> to_string()
  end

  defp text(e, path), do: :xmerl_xpath.string(path, e) |> Enum.map(&elem(&1, 4)) |> to_string()

  defp amount(app) do
    :xmerl_xpath.string(~c"budget/item/amount/text()", app) |> Enum.map(&(&1 |> elem(4) |> List.to_integer())) |> Enum.sum()
  end
end

defmodule Grants.Importer do
  @moduledoc "Imports one delivery after the other."
  use GenServer

  def start_link(i), do: GenServer.start_link(__MODULE__, i)

  def init(i) do
    Process.send_after(self(), :look, 300 * i)
    {:ok, 0}
  end

  def handle_info(:look, n) do
    case Grants.Inbox.next() do
      {:file, f} ->
        Grants.Store.add(Grants.Parser.parse(f))
        File.rm!(f)
        Process.send_after(self(), :look, 400)
        {:noreply, n + 1, :hibernate}

      :none ->
        Process.send_after(self(), :look, 400)
        {:noreply, n}
    end
  end
end

defmodule Grants.Listener do
  @moduledoc "TCP front for the staff"
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
    {:ok, pid} = Task.Supervisor.start_child(Grants.Connections, fn -> receive do: (:go -> Grants.Connection.serve(s)) end)
    case :gen_tcp.controlling_process(s, pid) do
      :ok -> send(pid, :go)
      _ -> Process.exit(pid, :kill)
    end
    accept(l)
  end
end

defmodule Grants.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [Grants.Api.answer(String.split(line)), ?\n])
        serve(s)
      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Grants.Api do
  def answer(["fund", f]) do
    case Grants.Store.fund(f) do
      [{_, n, sum}] -> "fund #{n} #{sum}"
      [] -> "none"
    end
  end

  def answer(["files"]), do: "files #{GenServer.call(Grants.Store, :files)}"
end
