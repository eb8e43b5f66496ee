defmodule Dispatch do
  use Application
  def start(_, _), do: Dispatch.Sup.start_link()
end

defmodule Dispatch.Sup do
  use Supervisor
  def start_link, do: Supervisor.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    orders = for n <- 1..6, do: Supervisor.child_spec({Dispatch.Orders, n}, id: {:orders, n})
    Supervisor.init([Dispatch.Labels, Dispatch.LineSup] ++ orders, strategy: :one_for_one)
  end
end

defmodule Dispatch.LineSup do
  @moduledoc "one packing line: post codes, scale, belt. The scale's converter is restarted at times, so give it room"
  use Supervisor
  def start_link(_), do: Supervisor.start_link(__MODULE__, [], name: __MODULE__)
  def init(_), do: Supervisor.init([Dispatch.Codes, Dispatch.Scale, Dispatch.Belt], strategy: :one_for_all, max_restarts: 1_000_000, max_seconds: 5)
end

defmodule Dispatch.Codes do
  @moduledoc "post code -> depot, from the carrier's file"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def depot(code), do: GenServer.call(__MODULE__, {:depot, code})

  def init(_) do
    codes =
      System.fetch_env!("CODES_FILE")
      |> File.read!()
      |> String.split("\n", trim: true)
      |> Map.new(fn line ->
        [code, depot] = String.split(line, ";")
        {code, depot}
      end)

    {:ok, codes}
  end

  def handle_call({:depot, code}, _from, codes), do: {:reply, codes[code], codes}
end

defmodule Dispatch.Scale do
  @moduledoc "the scale's serial converter (TCP)"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def weigh(parcel), do: GenServer.call(__MODULE__, {:weigh, parcel}, 500)
  def init(_), do: {:ok, nil, {:continue, :connect}}

  def handle_continue(:connect, nil) do
    port = String.to_integer(System.fetch_env!("SCALE_PORT"))
    {:ok, socket} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, active: false, packet: :line], 3000)
    {:noreply, socket}
  end

  def handle_call({:weigh, parcel}, _from, socket) do
    :ok = :gen_tcp.send(socket, "W #{parcel}\n")
    {:ok, grams} = :gen_tcp.recv(socket, 0, 2000)
    {:reply, grams |> String.trim() |> String.to_integer(), socket}
  end
end

defmodule Dispatch.Belt do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  def init(_) do
    :timer.send_interval(100, :step)
    {:ok, :queue.new()}
  end

  def handle_info(:step, q), do: {:noreply, q}
end

defmodule Dispatch.Labels do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def print(order, depot, grams), do: GenServer.call(__MODULE__, {:print, order, depot, grams})
  def init(_), do: {:ok, 0}
  def handle_call({:print, order, depot, grams}, _from, n), do: {:reply, "#{order}/#{depot}/#{grams}", n + 1}
end

defmodule Dispatch.Orders do
  @moduledoc "packs the orders of one shop"
  use GenServer
  def start_link(n), do: GenServer.start_link(__MODULE__, n)

  def init(n) do
    :timer.send_interval(250, :order)
    {:ok, %{shop: n, packed: 0, put_off: 0}}
  end

  def handle_info(:order, s) do
    order = "#{s.shop}-#{s.packed + s.put_off}"

    try do
      depot = Dispatch.Codes.depot("#{10000 + :rand.uniform(80000)}")
      Dispatch.Labels.print(order, depot, Dispatch.Scale.weigh(order))
      {:noreply, %{s | packed: s.packed + 1}}
    catch
      :exit, _ -> {:noreply, %{s | put_off: s.put_off + 1}}
    end
  end
end
