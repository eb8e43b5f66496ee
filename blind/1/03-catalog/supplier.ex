defmodule Catalog.Supplier do
  @moduledoc "Client of the suppliers' document store: GET <n>, answered with a length and the document."

  def fetch(id) do
    port = String.to_integer(System.fetch_env!("SUPPLIER_PORT"))
    {:ok, s} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, active: false, packet: 4, recbuf: 524_288])
    :ok = :gen_tcp.send(s, Integer.to_string(id))
    {:ok, body} = :gen_tcp.recv(s, 0, 15_000)
    :gen_tcp.close(s)
    body
  end
end

defmodule Catalog.Customers do
  @moduledoc "People who look at products."
  def start(n) do
    for _ <- 1..n, do: Task.Supervisor.start_child(Catalog.Web, fn -> browse() end)
    :ok
  end

  defp browse do
    id = :rand.uniform(max(div(Catalog.Store.size(), 2), 1)) - 1
    sku = "SKU" <> String.pad_leading(Integer.to_string(id), 10, "0") <> Integer.to_string(rem(id, 10))
    _ = Catalog.Store.get(sku)
    Process.sleep(20 + :rand.uniform(60))
    browse()
  end
end
