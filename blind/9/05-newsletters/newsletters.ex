defmodule Newsletters.Application do
  use Application

  def start(_type, _args) do
    senders = for i <- 1..8, do: Supervisor.child_spec({Newsletters.Sender, i}, id: {Newsletters.Sender, i})

    children = [
      Newsletters.Templates,
      Newsletters.Bounces,
      Newsletters.Outbox,
      %{
        id: Newsletters.Senders,
        type: :supervisor,
        start: {Supervisor, :start_link, [senders, [strategy: :one_for_one, name: Newsletters.Senders]]}
      },
      {Task.Supervisor, name: Newsletters.Connections},
      {Task, fn -> Newsletters.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Newsletters.Supervisor)
  end
end

defmodule Newsletters.Templates do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    :ets.new(:newsletters_templates, [:named_table, :protected, read_concurrency: true])
    for t <- ~w(spring sale welcome), do: :ets.insert(:newsletters_templates, {t, "Dear %NAME%,\r\n" <> String.duplicate("News about #{t}. ", 60)})
    {:ok, nil}
  end

  def render(t, name), do: String.replace(:ets.lookup_element(:newsletters_templates, t, 2), "%NAME%", name)
end

defmodule Newsletters.Bounces do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def note(address), do: GenServer.cast(__MODULE__, {:note, address})
  def init(_), do: {:ok, []}
  def handle_cast({:note, a}, l), do: {:noreply, Enum.take([a | l], 500)}
end

defmodule Newsletters.Outbox do
  @moduledoc "Mails to be sent; senders come and take the next one."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def put(mail), do: GenServer.call(__MODULE__, {:put, mail})
  def next, do: GenServer.call(__MODULE__, :next, :infinity)
  def done(ms), do: GenServer.cast(__MODULE__, {:done, ms})
  def status, do: GenServer.call(__MODULE__, :status)

  def init(_), do: {:ok, %{mails: :queue.new(), senders: :queue.new(), sent: 0}}

  def handle_call({:put, mail}, _, s) do
    case :queue.out(s.senders) do
      {{:value, from}, rest} ->
        GenServer.reply(from, mail)
        {:reply, :ok, %{s | senders: rest}}

      {:empty, _} ->
        {:reply, :ok, %{s | mails: :queue.in(mail, s.mails)}}
    end
  end

  def handle_call(:next, from, s) do
    case :queue.out(s.mails) do
      {{:value, mail}, rest} -> {:reply, mail, %{s | mails: rest}}
      {:empty, _} -> {:noreply, %{s | senders: :queue.in(from, s.senders)}}
    end
  end

  def handle_call(:status, _, s), do: {:reply, {s.sent, :queue.len(s.mails), :queue.len(s.senders)}, s}
  def handle_cast({:done, _ms}, s), do: {:noreply, %{s | sent: s.sent + 1}}
end

defmodule Newsletters.Sender do
  use GenServer
  require Logger
  def start_link(i), do: GenServer.start_link(__MODULE__, i)

  def init(i) do
    send(self(), :work)
    {:ok, i}
  end

  def handle_info(:work, i) do
    mail = Newsletters.Outbox.next()
    t = System.monotonic_time(:millisecond)

    case Newsletters.Smtp.deliver(mail) do
      :ok -> Newsletters.Outbox.done(System.monotonic_time(:millisecond) - t)
      {:error, reason} ->
        Logger.info("#{mail.to}: #{inspect(reason)}")
        Newsletters.Bounces.note(mail.to)
    end

    send(self(), :work)
    {:noreply, i}
  end
end

defmodule Newsletters.Smtp do
  @moduledoc "Just enough of RFC 5321"
  @connect_timeout 5_000
  # RFC 5321 4.5.3.2 wants us to be patient
  @read_timeout 1_200_000

  def deliver(mail) do
    [_, domain] = String.split(mail.to, "@")

    with {:ok, s} <- :gen_tcp.connect({127, 0, 0, 1}, mx(domain), [:binary, packet: :line, active: false], @connect_timeout) do
      try do
        with :ok <- expect(s, "220"),
             :ok <- say(s, "EHLO news.example", "250"),
             :ok <- say(s, "MAIL FROM:<news@news.example>", "250"),
             :ok <- say(s, "RCPT TO:<#{mail.to}>", "250"),
             :ok <- say(s, "DATA", "354"),
             :ok <- say(s, [mail.body, "\r\n."], "250"),
             do: say(s, "QUIT", "221")
      after
        :gen_tcp.close(s)
      end
    end
  end

  defp say(s, line, code) do
    with :ok <- :gen_tcp.send(s, [line, "\r\n"]), do: expect(s, code)
  end

  defp expect(s, code) do
    case :gen_tcp.recv(s, 0, @read_timeout) do
      {:ok, <<^code::binary-size(3), _::binary>>} -> :ok
      {:ok, other} -> {:error, other}
      error -> error
    end
  end

  # the MX of a domain, as the resolver's cache has it
  defp mx(domain) do
    [good, other] = System.fetch_env!("MX_PORTS") |> String.split(",") |> Enum.map(&String.to_integer/1)
    if domain == "oldmail.example", do: other, else: good
  end
end

defmodule Newsletters.Listener do
  @moduledoc "The shops' API: mail <address> <name> <template> | status"
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, backlog: 64])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Newsletters.Connections, fn -> serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end

  defp serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        :ok = :gen_tcp.send(s, [answer(String.split(String.trim(line), " ")), "\n"])
        serve(s)

      {:error, _} ->
        :gen_tcp.close(s)
    end
  end

  defp answer(["mail", to, name, template]) do
    :ok = Newsletters.Outbox.put(%{to: to, body: Newsletters.Templates.render(template, name)})
    "queued"
  end

  defp answer(["status"]), do: inspect(Newsletters.Outbox.status())
end
