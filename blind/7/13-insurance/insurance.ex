defmodule Insurance.Application do
  use Application

  def start(_, _) do
    :ets.new(:insurance_counts, [:named_table, :public, write_concurrency: true])
    for k <- [:offers, :overload, :no_tariff], do: :ets.insert(:insurance_counts, {k, 0})
    raters = for n <- 0..11, do: Supervisor.child_spec({Insurance.Rater, n}, id: {:rater, n})
    gates = for n <- 0..11, do: Supervisor.child_spec({Insurance.Gate, n}, id: {:gate, n})

    children =
      [Insurance.Tariffs, {Registry, keys: :unique, name: Insurance.Names}] ++
        raters ++ gates ++ [{Task.Supervisor, name: Insurance.Requests}, {Task, fn -> Insurance.Listener.run() end}]

    Supervisor.start_link(children, strategy: :one_for_one, name: Insurance.Supervisor)
  end
end

defmodule Insurance.Tariffs do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def fetch(class), do: :ets.lookup(__MODULE__, class)

  def init(_) do
    :ets.new(__MODULE__, [:named_table, read_concurrency: true])
    for c <- 1..60, c not in [17, 41], do: :ets.insert(__MODULE__, {c, 200 + 7 * c, for(k <- 1..40, do: {k, 1 + rem(c * k, 13) / 100})})
    {:ok, nil}
  end
end

defmodule Insurance.Gate do
  @moduledoc """
  In front of each rater: lets only so many requests wait for it, the others get an answer at once
  ("overload") instead of a time-out. The rater says when it is done with one.
  """
  use GenServer
  @limit 60
  def start_link(n), do: GenServer.start_link(__MODULE__, n, name: name(n))
  def name(n), do: {:via, Registry, {Insurance.Names, {:gate, n}}}
  def offer(n, request), do: GenServer.call(name(n), {:offer, request})
  def done(gate), do: GenServer.cast(gate, :done)

  def init(n), do: {:ok, %{n: n, waiting: 0, passed: 0, refused: 0}}

  def handle_call({:offer, _}, _, %{waiting: w} = s) when w >= @limit do
    {:reply, {:error, :overload}, %{s | refused: s.refused + 1}}
  end

  def handle_call({:offer, request}, from, s) do
    Insurance.Rater.rate(s.n, request, from, self())
    {:noreply, %{s | waiting: s.waiting + 1, passed: s.passed + 1}}
  end

  def handle_cast(:done, s), do: {:noreply, %{s | waiting: s.waiting - 1}}
end

defmodule Insurance.Rater do
  @moduledoc "Computes an offer (two to three milliseconds)."
  use GenServer
  def start_link(n), do: GenServer.start_link(__MODULE__, n, name: name(n))
  def name(n), do: {:via, Registry, {Insurance.Names, {:rater, n}}}
  def rate(n, request, from, gate), do: GenServer.cast(name(n), {:rate, request, from, gate})
  def init(n), do: {:ok, %{n: n, rated: 0}}

  def handle_cast({:rate, {class, age, km}, from, gate}, s) do
    case Insurance.Tariffs.fetch(class) do
      [{_, base, factors}] ->
        price = Enum.reduce(1..150, base, fn i, p -> Enum.reduce(factors, p, fn {k, f}, q -> if rem(k + age + i, 9) == 0, do: q * f / f + km / 1.0e6, else: q end) end)
        GenServer.reply(from, {:ok, round(price)})
        Insurance.Gate.done(gate)
        {:noreply, %{s | rated: s.rated + 1}}

      [] ->
        GenServer.reply(from, {:error, :no_tariff})
        {:noreply, s}
    end
  end
end

defmodule Insurance.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, nodelay: true, backlog: 128])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Insurance.Requests, fn -> serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end

  defp serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        [plate, class, age, km] = String.split(line)

        answer =
          case Insurance.Gate.offer(:erlang.phash2(plate, 12), {String.to_integer(class), String.to_integer(age), String.to_integer(km)}) do
            {:ok, price} ->
              :ets.update_counter(:insurance_counts, :offers, 1)
              "offer #{price}"

            {:error, why} ->
              :ets.update_counter(:insurance_counts, why, 1)
              to_string(why)
          end

        :ok = :gen_tcp.send(s, [answer, "\n"])
        serve(s)

      {:error, _} ->
        :ok
    end
  end
end
