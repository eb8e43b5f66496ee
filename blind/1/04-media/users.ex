defmodule Media.Users do
  @moduledoc "Users who upload a drawing about 6 times a second; every third drawing links to an external font."

  def start do
    spawn(fn -> upload(0) end)
    :ok
  end

  defp upload(n) do
    path = Path.join(System.fetch_env!("UPLOAD_DIR"), "drawing-#{n}.svg")
    font = if rem(n, 3) == 0, do: "<style>@import url('http://fonts.intranet/Rail.woff2')</style>", else: ""
    File.write!(path, "<svg>#{font}<text x='10' y='20'>Drawing #{n}</text></svg>")
    Media.PreviewQueue.enqueue(path)
    Process.sleep(100 + :rand.uniform(150))
    upload(n + 1)
  end
end
