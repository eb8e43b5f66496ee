defmodule Trucks.Application do
  use Application

  def start(_, _) do
    :ets.new(:trucks_counts, [:named_table, :public, write_concurrency: true])
    for k <- [:events, :skipped], do: :ets.insert(:trucks_counts, {k, 0})

    children = [
      Trucks.Fleet,
      Trucks.Fences,
      {Task.Supervisor, name: Trucks.Units},
      Trucks.Report,
      {Task, fn -> Trucks.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Trucks.Supervisor)
  end
end

defmodule Trucks.Fleet do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def get(id), do: with([{_, t}] <- :ets.lookup(__MODULE__, id), do: t)
  def put(id, t), do: :ets.insert(__MODULE__, {id, t})

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :public, read_concurrency: true, write_concurrency: true])

    for id <- 1..900 do
      put(id, %{id: id, plate: "TR-#{1000 + id}", at: {48.2, 16.3}, speed: 0, fuel: 400.0, driver: %{name: "driver #{id}", card: "C#{id * 7919}", hours: Enum.to_list(1..9)},
        stops: for(n <- 1..26, do: %{no: n, town: "town #{rem(id * n, 211)}", from: n * 3600, until: n * 3600 + 1800}), events: []})
    end

    {:ok, nil}
  end
end

defmodule Trucks.Fences do
  @moduledoc "Areas in which something happens (depots, tolls)."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def inside({lat, lon}), do: :persistent_term.get(__MODULE__) |> Enum.find(fn {_, a, b, r} -> abs(a - lat) < r and abs(b - lon) < r end)

  def init(_) do
    :persistent_term.put(__MODULE__, for(n <- 1..80, do: {"fence #{n}", 47.0 + n / 40, 15.0 + rem(n * 17, 80) / 40, 0.01}))
    {:ok, nil}
  end
end

defmodule Trucks.Webhook do
  @moduledoc "Works on the events of the units. Every step tells the log what it does, so that support can follow it."
  require Logger

  def handle(%{truck: id} = event) do
    Logger.info("[Webhook] income event: #{inspect(event, pretty: true)}")
    truck = Trucks.Fleet.get(id)
    Logger.info("[Webhook] truck found: #{inspect(truck, pretty: true, limit: :infinity)}")

    if hd(truck.events ++ [nil]) == event.no do
      Logger.warning("[Webhook] event already processed, skipping: #{inspect(event)}")
      :ets.update_counter(:trucks_counts, :skipped, 1)
      :skipped
    else
      truck |> step(:position, event) |> step(:fuel, event) |> step(:fence, event) |> step(:hours, event) |> done(event)
    end
  end

  defp step(t, :position, e), do: log(%{t | at: e.at, speed: e.speed}, :position)
  defp step(t, :fuel, e), do: log(%{t | fuel: t.fuel - e.speed / 4000}, :fuel)

  defp step(t, :fence, e) do
    case Trucks.Fences.inside(e.at) do
      nil -> log(t, :fence)
      {name, _, _, _} -> log(Map.put(t, :fence, name), :fence)
    end
  end

  defp step(t, :hours, _), do: log(t, :hours)

  defp log(t, step) do
    Logger.info("[Webhook] step #{step}: #{inspect(t, pretty: true, limit: :infinity)}")
    t
  end

  defp done(t, e) do
    t = %{t | events: Enum.take([e.no | t.events], 20)}
    Trucks.Fleet.put(t.id, t)
    Logger.info("[Webhook] saved #{inspect(t, pretty: true, limit: :infinity)}")
    Logger.info("Sent 200")
    :ets.update_counter(:trucks_counts, :events, 1)
    :ok
  end
end

defmodule Trucks.Report do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :report, 5000)
    {:ok, 0.0}
  end

  def handle_info(:report, _) do
    Process.send_after(self(), :report, 5000)
    {:noreply, :ets.foldl(fn {_, t}, a -> a + t.fuel end, 0.0, Trucks.Fleet)}
  end
end

defmodule Trucks.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, nodelay: true, backlog: 128])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Trucks.Units, fn -> serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end

  defp serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        [no, id, lat, lon, speed] = String.split(line)
        r = Trucks.Webhook.handle(%{no: String.to_integer(no), truck: String.to_integer(id), at: {String.to_float(lat), String.to_float(lon)}, speed: String.to_integer(speed)})
        :ok = :gen_tcp.send(s, "#{r}\n")
        serve(s)

      {:error, _} ->
        :ok
    end
  end
end
