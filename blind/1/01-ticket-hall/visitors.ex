defmodule Hall.Visitors do
  @moduledoc "Visitors as the web tier would bring them: open the page, look, hold a seat, leave, come back."

  def start(n) do
    for i <- 1..n do
      {:ok, _} = Task.Supervisor.start_child(Hall.TaskSupervisor, fn -> Process.sleep(:rand.uniform(4_000)); visit(i, 0) end)
    end
    :ok
  end

  defp visit(i, n) do
    id = {i, n}
    event = :rand.uniform(300)
    t0 = System.monotonic_time(:millisecond)
    {:ok, _} = Hall.SessionSupervisor.open(id, event)
    Hall.Stats.incr(:open_ms, System.monotonic_time(:millisecond) - t0)
    Hall.Stats.incr(:opened)

    for k <- 1..3 do
      {_free, _price} = Hall.Session.view(id)
      Process.sleep(200 + :rand.uniform(300))
      Hall.Session.hold(id, "R#{k}S#{:rand.uniform(30)}")
    end

    Hall.Session.close(id)
    Process.sleep(1_000 + :rand.uniform(2_000))
    visit(i, n + 1)
  end
end
