defmodule Coupons.Application do
  use Application

  def start(_, _) do
    children = [Coupons.Store, Coupons.Ledger, {Task.Supervisor, name: Coupons.Connections}, Coupons.Listener]
    Supervisor.start_link(children, strategy: :one_for_one, name: Coupons.Supervisor)
  end
end

defmodule Coupons.Store do
  @moduledoc "Rules of the shops, as their owners wrote them."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def rules(shop), do: :ets.lookup_element(__MODULE__, shop, 2)

  def init(_) do
    :ets.new(__MODULE__, [:named_table, :protected, read_concurrency: true])

    for i <- 0..39 do
      rules =
        for r <- 1..12 do
          {"c#{i}-#{r}",
           "total > #{1000 + r * 700 + i} and items >= #{rem(r, 4) + 1} and (level in [#{rem(r, 4) + 1}, 4] or rem(total, #{r + 3}) == 0) and " <>
             "not (items > #{r + 6} and total < #{5000 + r * 10}) and Enum.member?([1, 2, 3, 4], level)", 5 + r}
        end

      :ets.insert(__MODULE__, {"shop#{i}", rules})
    end

    {:ok, nil}
  end
end

defmodule Coupons.Rules do
  @moduledoc "Which of the shop's coupons apply to a basket."

  def coupons(shop, basket) do
    for {id, rule, percent} <- Coupons.Store.rules(shop), applies?(rule, basket), do: {id, percent}
  end

  def applies?(rule, basket) do
    {result, _} = Code.eval_string(rule, basket)
    result == true
  end
end

defmodule Coupons.Ledger do
  @moduledoc "Counts the coupons that were given."
  use GenServer

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)
  def given(shop, coupons), do: GenServer.cast(__MODULE__, {:given, shop, length(coupons)})
  def init(_), do: {:ok, %{}}
  def handle_cast({:given, shop, k}, s), do: {:noreply, Map.update(s, shop, k, &(&1 + k))}
end

defmodule Coupons.Listener do
  @moduledoc "TCP front of the coupon service"
  use Task, restart: :permanent

  def start_link(_), do: Task.start_link(__MODULE__, :listen, [])

  def listen do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, reuseaddr: true, backlog: 256, ip: {127, 0, 0, 1}, nodelay: true, buffer: 65_536])
    {:ok, port} = :inet.port(l)
    file = System.fetch_env!("PORT_FILE")
    File.write!(file <> ".new", "#{port}")
    File.rename!(file <> ".new", file)
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Coupons.Connections, fn -> receive do: (:go -> Coupons.Connection.serve(s)) end)
    case :gen_tcp.controlling_process(s, pid) do
      :ok -> send(pid, :go)
      _ -> Process.exit(pid, :kill)
    end
    accept(l)
  end
end

defmodule Coupons.Connection do
  def serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [Coupons.Api.answer(String.split(line)), ?\n])
        serve(s)
      {:error, _} ->
        :gen_tcp.close(s)
    end
  end
end

defmodule Coupons.Api do
  def answer(["basket", shop, total, items, level]) do
    basket = [total: String.to_integer(total), items: String.to_integer(items), level: String.to_integer(level)]
    found = Coupons.Rules.coupons(shop, basket)
    Coupons.Ledger.given(shop, found)
    ["ok", Enum.map(found, fn {id, p} -> " #{id}:#{p}" end)]
  end
end
