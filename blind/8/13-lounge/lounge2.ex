defmodule Lounge.Second do
  @moduledoc "The second node of the lounge: only the tracker and some guests."
  def start do
    children = [{Lounge.Tracker, players: 30_000, gone_clock: 0}]
    {:ok, _} = Supervisor.start_link(children, strategy: :one_for_one, name: Lounge.SecondSupervisor)
    spawn(fn -> guests(0) end)
    join()
    Process.sleep(:infinity)
  end

  defp join do
    unless Node.connect(:"lounge@127.0.0.1"), do: (Process.sleep(300); join())
  end

  defp guests(n) do
    Process.sleep(50)
    Lounge.Tracker.track("room#{rem(n, 2500)}", "guest#{n}", %{since: n})
    if n > 50, do: Lounge.Tracker.untrack("room#{rem(n - 50, 2500)}", "guest#{n - 50}")
    guests(n + 1)
  end
end
