# Settings of a program in an Agent, and each caller that needs one of them fetches them all: Agent.get(agent, & &1).
# The Agent copies them for each caller. Healthy: the function looks up the one setting in the Agent, and only that is
# copied.
defmodule :lab_elixir_agent do
  def start(args), do: :lab.run(__MODULE__, args)

  def establish(context) do
    {:ok, _} = :application.ensure_all_started(:elixir)
    clients = :lab.int(context, :clients, 12, 20)
    settings = :lab.int(context, :settings, 700, 1_100)
    # In per cent of what the Agent can copy.
    demand_pct = :lab.int(context, :demand_pct, 110, 125)
    [name | others] = for name <- :lab.names(context, :agents, 3), do: Module.concat("Shop", Macro.camelize(Atom.to_string(name)))
    value = fn key -> %{key: key, text: Enum.to_list(key..(key + 10))} end

    for agent <- [name | others] do
      {:ok, _} = Agent.start_link(fn -> Map.new(1..settings, &{&1, value.(&1)}) end, name: agent)
    end

    copies_us = Enum.min(for _ <- 1..200, do: elem(:timer.tc(fn -> Agent.get(name, & &1) end), 0))
    per_s = max(1, div(10_000 * demand_pct, max(1, copies_us) * clients))

    fetch =
      case :lab.sick(context) do
        true -> fn key -> Map.fetch!(Agent.get(name, & &1, :infinity), key) end
        false -> fn key -> Agent.get(name, &Map.fetch!(&1, key), :infinity) end
      end

    served = :lab.counter()

    for _ <- 1..clients do
      :lab.start(fn ->
        :lab.at_rate(per_s, fn due ->
          for _ <- 1..due do
            key = :rand.uniform(settings)
            %{key: ^key} = fetch.(key)
            :lab.count(served)
          end
        end)
      end)
    end

    :lab.wait_until(:served, fn -> :lab.total(served) > 2 * clients end)

    %{
      sick: :lab.culprit(context, name),
      details: %{agents: {:list, [name | others]}, clients: clients, settings: settings, copies_us: copies_us, per_s: per_s}
    }
  end
end
