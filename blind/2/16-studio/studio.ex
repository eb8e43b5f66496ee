defmodule Studio.Application do
  use Application

  def start(_type, _args) do
    renderers = for i <- 1..4, do: Supervisor.child_spec({Studio.Renderer, i}, id: {:renderer, i})
    children = [Studio.Clips, Studio.Queue, Studio.Editors] ++ renderers
    Supervisor.start_link(children, strategy: :one_for_one, name: Studio.Supervisor)
  end
end

defmodule Studio.Clips do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def get(id), do: :ets.lookup(:studio_clips, id)
  def rendered(id, sum), do: :ets.update_element(:studio_clips, id, [{3, sum}])

  def init(_) do
    :ets.new(:studio_clips, [:named_table, :public, :set, read_concurrency: true, write_concurrency: true])
    for i <- 1..60_000, do: :ets.insert(:studio_clips, {i, "clip #{i}", nil})
    {:ok, nil}
  end
end

defmodule Studio.Queue do
  @moduledoc "What is to be rendered until six in the morning. The renderers come and take."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def take, do: GenServer.call(__MODULE__, :take, :infinity)
  def status, do: GenServer.call(__MODULE__, :status)

  def init(_), do: {:ok, %{left: :queue.from_list(Enum.to_list(1..60_000)), done: 0, since: System.monotonic_time(:second)}}

  def handle_call(:take, _from, s) do
    {{:value, id}, rest} = :queue.out(s.left)
    {:reply, id, %{s | left: :queue.in(id, rest), done: s.done + 1}}
  end

  def handle_call(:status, _from, s), do: {:reply, %{done: s.done, seconds: System.monotonic_time(:second) - s.since}, s}
end

defmodule Studio.Renderer do
  @moduledoc "Renders clip by clip, with low priority: it takes what the editors leave."
  def child_spec(i), do: %{id: {__MODULE__, i}, start: {__MODULE__, :start_link, [i]}}

  def start_link(i) do
    {:ok, :proc_lib.spawn_opt(fn ->
      Process.register(self(), :"renderer_#{i}")
      loop()
    end, [:link, priority: :low])}
  end

  defp loop do
    id = Studio.Queue.take()
    sum = Enum.reduce(1..25, id, fn f, acc -> frame(f, acc) end)
    Studio.Clips.rendered(id, sum)
    loop()
  end

  defp frame(f, seed) do
    px = for x <- 1..64, y <- 1..24, do: rem(x * y + f * seed, 255)
    px |> Enum.chunk_every(8) |> Enum.map(&Enum.sum/1) |> Enum.reduce(seed, fn v, a -> rem(a * 31 + v, 1_000_003) end)
  end
end

defmodule Studio.Editors do
  @moduledoc "80 editors that browse the clips; each request is answered in the editor's own process."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def times, do: GenServer.call(__MODULE__, :times)

  def init(_) do
    :ets.new(:studio_times, [:named_table, :public, write_concurrency: true])
    reset()
    for _ <- 1..80, do: spawn_link(&edit/0)
    {:ok, nil}
  end

  # {requests, ms on average, ms at most} since the last call
  def handle_call(:times, _from, s) do
    [n, us, max] = for k <- [:n, :us, :max], do: :ets.lookup_element(:studio_times, k, 2)
    reset()
    {:reply, {n, us / max(n, 1) / 1000, max / 1000}, s}
  end

  defp reset, do: :ets.insert(:studio_times, [{:n, 0}, {:us, 0}, {:max, 0}])

  defp edit do
    t0 = System.monotonic_time(:microsecond)
    Process.sleep(wait = 300 + :rand.uniform(600))
    me = self()
    {pid, ref} = spawn_monitor(fn -> send(me, {:page, self(), page()}) end)

    receive do
      {:page, ^pid, _} -> Process.demonitor(ref, [:flush])
      {:DOWN, ^ref, _, _, _} -> :error
    end

    us = max(System.monotonic_time(:microsecond) - t0 - wait * 1000, 0)
    :ets.update_counter(:studio_times, :n, 1)
    :ets.update_counter(:studio_times, :us, us)
    if us > :ets.lookup_element(:studio_times, :max, 2), do: :ets.insert(:studio_times, {:max, us})
    edit()
  end

  defp page do
    for _ <- 1..20, [{id, title, sum}] = Studio.Clips.get(:rand.uniform(60_000)), do: [Integer.to_string(id), title, inspect(sum)]
  end
end
