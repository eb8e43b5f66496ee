defmodule PageCache.Readers do
  @moduledoc "Readers: mostly the pages of today, which move on slowly; bots read old ones."

  def start(n) do
    for _ <- 1..n, do: {:ok, _} = Task.Supervisor.start_child(PageCache.Requests, fn -> loop(System.monotonic_time(:millisecond)) end)
    :ok
  end

  defp loop(t0) do
    head = 90_000 + div(System.monotonic_time(:millisecond) - t0, 6)
    key = if :rand.uniform(20) == 1, do: head - :rand.uniform(92_000), else: head - round(abs(:rand.normal()) * 20_000)
    _ = PageCache.fetch(max(1, key))
    Process.sleep(:rand.uniform(40))
    loop(t0)
  end
end
