defmodule Signup.Application do
  use Application

  def start(_type, _args) do
    children = [
      Signup.Store,
      {Task.Supervisor, name: Signup.Requests},
      Signup.Confirmations,
      {Task, fn -> Signup.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Signup.Supervisor)
  end
end

defmodule Signup.Store do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def add(email, name), do: :ets.insert(__MODULE__, {email, name, System.system_time(:second)})
  def init(_), do: {:ok, :ets.new(__MODULE__, [:named_table, :public])}
end

defmodule Signup.Confirmations do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def send_to(email), do: GenServer.cast(__MODULE__, {:send, email})
  def init(_), do: {:ok, %{sent: 0, tokens: []}}

  def handle_cast({:send, email}, s) do
    token = :crypto.hash(:sha256, [email, <<s.sent::32>>]) |> Base.encode16()
    {:noreply, %{s | sent: s.sent + 1, tokens: Enum.take([token | s.tokens], 100)}}
  end
end

defmodule Signup.Check do
  def form(%{email: e, name: n}) do
    cond do
      String.length(n) < 2 -> {:error, :name}
      not email?(e) -> {:error, :email}
      true -> :ok
    end
  end

  def email?(e), do: Regex.match?(~r/^([\w+\-].?)+@[a-z\d\-]+(\.[a-z]+)*\.[a-z]+$/i, e)
end

defmodule Signup.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, nodelay: true, backlog: 100])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Signup.Requests, fn -> wait_and_serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    send(pid, :go)
    accept(l)
  end

  defp wait_and_serve(s) do
    receive do
      :go -> serve(s)
    end
  end

  defp serve(s) do
    with {:ok, line} <- :gen_tcp.recv(s, 0, 10_000) do
      [email, name] = line |> String.trim() |> String.split(";")

      answer =
        case Signup.Check.form(%{email: email, name: name}) do
          :ok ->
            Signup.Store.add(email, name)
            Signup.Confirmations.send_to(email)
            "201 thank you\n"

          {:error, what} ->
            "422 #{what}\n"
        end

      :gen_tcp.send(s, answer)
    end

    :gen_tcp.close(s)
  end
end
