defmodule Taxis.Application do
  use Application
  def start(_, _) do
    children = [
      Taxis.Zones,
      Taxis.Map,
      Taxis.Rides,
      Taxis.Radio
    ]
    Supervisor.start_link(children, strategy: :one_for_one, name: Taxis.Supervisor)
  end
end

defmodule Taxis.Zones do
  def child_spec(_), do: %{id: __MODULE__, start: {Agent, :start_link, [fn -> Map.new(0..99, &{&1, 0}) end, [name: __MODULE__]]}}
  def enter(z), do: Agent.cast(__MODULE__, &Map.update!(&1, z, fn n -> n + 1 end))
end

defmodule Taxis.Map do
  @moduledoc "Where the taxis are. One that has not been heard of for half an hour is taken off."
  use GenServer
  @silent 30 * 60 * 1000

  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def at(taxi, place), do: GenServer.cast(__MODULE__, {:at, taxi, place})
  def where(taxi), do: GenServer.call(__MODULE__, {:where, taxi})

  def init(_), do: {:ok, %{taxis: %{}, silent: 0}}

  def handle_cast({:at, taxi, place}, s) do
    timer = Process.send_after(self(), {:silent, taxi, place}, @silent)
    {:noreply, put_in(s.taxis[taxi], %{place: place, timer: timer, heard: System.monotonic_time(:second)})}
  end

  def handle_call({:where, taxi}, _, s), do: {:reply, get_in(s.taxis[taxi][:place]), s}

  def handle_info({:silent, taxi, place}, s) do
    case s.taxis[taxi] do
      %{place: ^place} -> {:noreply, %{s | taxis: Map.delete(s.taxis, taxi), silent: s.silent + 1}}
      _ -> {:noreply, s}
    end
  end
end

defmodule Taxis.Rides do
  @moduledoc "Looks for a taxi for a passenger, thirty times a second"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def init(_) do
    {:ok, _} = :timer.send_interval(33, :passenger)
    {:ok, %{found: 0, none: 0}}
  end
  def handle_info(:passenger, s) do
    found = for _ <- 1..5, p = Taxis.Map.where(:rand.uniform(600)), do: p.lat
    {:noreply, if(found == [], do: %{s | none: s.none + 1}, else: %{s | found: s.found + 1})}
  end
end

defmodule Taxis.Radio do
  @moduledoc "Datagrams of the taxis: number, position and the way since the last one"
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def init(_) do
    {:ok, u} = :gen_udp.open(0, [:binary, active: 100, ip: {127, 0, 0, 1}, recbuf: 1_000_000])
    {:ok, port} = :inet.port(u)
    File.write!(System.get_env("PORT_FILE"), Integer.to_string(port))
    {:ok, u}
  end
  def handle_info({:udp, _, _, _, data}, u) do
    [taxi | way] = String.split(data, ";")
    way = for p <- way, [a, b] = String.split(p, ","), do: {String.to_integer(a), String.to_integer(b)}
    {lat, lon} = hd(way)
    Taxis.Zones.enter(rem(lat + lon, 100))
    Taxis.Map.at(String.to_integer(taxi), %{lat: lat, lon: lon, way: way})
    {:noreply, u}
  end
  def handle_info({:udp_passive, _}, u) do
    :inet.setopts(u, active: 100)
    {:noreply, u}
  end
end
