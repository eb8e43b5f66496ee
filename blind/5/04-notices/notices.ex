defmodule Notices do
  use Application
  def start(_, _), do: Notices.Sup.start_link()
end

defmodule Notices.Sup do
  use Supervisor
  def start_link, do: Supervisor.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    events = for n <- 1..6, do: Supervisor.child_spec({Notices.Events, n}, id: {:events, n})
    Supervisor.init([Notices.Partners, Notices.Templates, Notices.Courier, Notices.Dashboard] ++ events, strategy: :one_for_one)
  end
end

defmodule Notices.Partners do
  use Agent
  def start_link(_), do: Agent.start_link(fn -> for(n <- 1..24, into: %{}, do: {n, "hooks#{n}.partners.test"}) end, name: __MODULE__)
  def host(n), do: Agent.get(__MODULE__, &Map.fetch!(&1, n))
end

defmodule Notices.Templates do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def render(kind, args), do: GenServer.call(__MODULE__, {:render, kind, args})
  def init(_), do: {:ok, %{shipped: "Parcel ~s left our house", late: "Parcel ~s is late", back: "Parcel ~s comes back"}}
  def handle_call({:render, kind, args}, _from, t), do: {:reply, :io_lib.format(t[kind], args) |> IO.iodata_to_binary(), t}
end

defmodule Notices.Courier do
  @moduledoc "brings the notices to the partners' hooks, in order"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def bring(partner, text), do: GenServer.cast(__MODULE__, {:bring, partner, text, System.monotonic_time(:millisecond)})
  def delivered, do: GenServer.call(__MODULE__, :delivered)
  def init(_), do: {:ok, %{ok: 0, failed: 0, age: 0}}

  def handle_cast({:bring, partner, text, at}, s) do
    case post(Notices.Partners.host(partner), text) do
      :ok -> {:noreply, %{s | ok: s.ok + 1, age: System.monotonic_time(:millisecond) - at}}
      {:error, _} -> {:noreply, %{s | failed: s.failed + 1}}
    end
  end

  def handle_call(:delivered, _from, s), do: {:reply, s, s}

  defp post(host, text) do
    port = String.to_integer(System.fetch_env!("HOOKS_PORT"))

    with {:ok, sock} <- :gen_tcp.connect(String.to_charlist(host), port, [:binary, active: false, packet: :line], 10_000),
         :ok <- :gen_tcp.send(sock, [text, "\n"]),
         {:ok, "OK" <> _} <- :gen_tcp.recv(sock, 0, 5000) do
      :gen_tcp.close(sock)
    end
  end
end

defmodule Notices.Events do
  @moduledoc "the warehouse's events of one dock"
  use GenServer
  def start_link(n), do: GenServer.start_link(__MODULE__, n)

  def init(n) do
    Process.send_after(self(), :event, 300 * n)
    {:ok, {n, 0}}
  end

  def handle_info(:event, {n, k}) do
    text = Notices.Templates.render(Enum.random([:shipped, :shipped, :late, :back]), ["#{n}-#{k}"])
    Notices.Courier.bring(Enum.random(1..24), text)
    Process.send_after(self(), :event, 800 + :rand.uniform(400))
    {:noreply, {n, k + 1}}
  end
end

defmodule Notices.Dashboard do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    :timer.send_interval(2000, :poll)
    {:ok, %{seen: nil, missed: 0}}
  end

  def handle_info(:poll, s) do
    try do
      {:noreply, %{s | seen: Notices.Courier.delivered()}}
    catch
      :exit, {:timeout, _} -> {:noreply, %{s | missed: s.missed + 1}}
    end
  end

  def handle_info(_late, s), do: {:noreply, s}
end
