# Viewers of a few broadcasts, which subscribe with a Registry with duplicate keys and exit after a while. For each
# exit the process of the partition scans all entries with the same key to delete one. One partition cannot keep up.
# Healthy: there are many, each with a part of the viewers.
defmodule :lab_elixir_registry do
  # At this number of entries no more viewers start.
  @max_entries 150_000
  @partitions 16

  def start(args), do: :lab.run(__MODULE__, args)

  def establish(context) do
    {:ok, _} = :application.ensure_all_started(:elixir)
    viewers = :lab.int(context, :viewers, 16_000, 22_000)
    leave_per_s = :lab.int(context, :leave_per_s, 1_200, 1_600)
    topics = for name <- :lab.names(context, :topics, 3), do: "broadcast:#{name}"
    name = Module.concat("Live", Macro.camelize(Atom.to_string(:lab.name(context, :registry))))
    partitions = if :lab.sick(context), do: 1, else: @partitions
    {:ok, _} = Registry.start_link(keys: :duplicate, name: name, partitions: partitions)
    partition = Module.concat(name, "PIDPartition0")
    # Nearly all watch the same one.
    [popular | others] = topics
    joined = :lab.counter()

    join = fn life_ms ->
      :lab.start(fn ->
        topic = if :rand.uniform(20) == 1, do: Enum.random(others), else: popular
        {:ok, _} = Registry.register(name, topic, nil)
        :lab.count(joined)
        :lab.pause(life_ms)
      end)
    end

    stay_ms = div(viewers * 1000, leave_per_s)
    for _ <- 1..viewers, do: join.(:rand.uniform(stay_ms))
    :lab.wait_until(:joined, fn -> :lab.total(joined) >= viewers end)

    :lab.start(fn ->
      :lab.at_rate(leave_per_s, fn due ->
        if Registry.count(name) < @max_entries, do: for(_ <- 1..due, do: join.(stay_ms))
      end)
    end)

    # The first viewers stay for different times, so from now on the exit rate equals the spawn rate.
    :lab.wait_until(:steady, fn -> :lab.total(joined) > viewers + div(viewers, 3) end)

    %{
      sick: :lab.culprit(context, partition),
      details: %{
        registry: name,
        pid: Process.whereis(partition),
        viewers: viewers,
        leave_per_s: leave_per_s,
        partitions: partitions
      }
    }
  end
end
