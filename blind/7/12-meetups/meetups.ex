defmodule Meetups.Application do
  use Application

  def start(_, _) do
    :ets.new(:meetups_counts, [:named_table, :public, write_concurrency: true])
    for k <- [:asked, :updates], do: :ets.insert(:meetups_counts, {k, 0})

    children = [
      {Registry, keys: :duplicate, name: Meetups.Subscriptions, partitions: System.schedulers_online()},
      {DynamicSupervisor, name: Meetups.Pages, strategy: :one_for_one},
      Meetups.Audience,
      {Task.Supervisor, name: Meetups.Requests},
      Meetups.News,
      {Task, fn -> Meetups.Listener.run() end}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Meetups.Supervisor)
  end
end

defmodule Meetups.Page do
  @moduledoc "An open page: follows the meetups it shows."
  use GenServer, restart: :temporary
  def start_link(user), do: GenServer.start_link(__MODULE__, user, hibernate_after: 3000)

  def init(user) do
    for m <- Enum.uniq(for _ <- 1..14, do: :rand.uniform(6000)), do: {:ok, _} = Registry.register(Meetups.Subscriptions, {:meetup, m}, user)
    {:ok, %{user: user, seen: 0}}
  end

  def handle_info({:news, _m, _text}, s), do: {:noreply, %{s | seen: s.seen + 1}}
end

defmodule Meetups.Audience do
  @moduledoc "Opens the pages (stands for the web sockets of the users)."
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)
  def init(_), do: {:ok, 0, {:continue, :open}}

  def handle_continue(:open, _) do
    for n <- 1..2600, do: {:ok, _} = DynamicSupervisor.start_child(Meetups.Pages, {Meetups.Page, "user#{n}"})
    {:noreply, 2600}
  end
end

defmodule Meetups.Subscription do
  @doc "Does this user follow this meetup at the moment (on any of the open pages)?"
  def following?(meetup, user) do
    Registry.match(Meetups.Subscriptions, {:meetup, meetup}, user) != []
  end

  def publish(meetup, text) do
    Registry.dispatch(Meetups.Subscriptions, {:meetup, meetup}, fn entries ->
      for {pid, _} <- entries, do: send(pid, {:news, meetup, text})
    end)
  end
end

defmodule Meetups.News do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def init(_) do
    Process.send_after(self(), :news, 50)
    {:ok, 0}
  end

  def handle_info(:news, n) do
    Meetups.Subscription.publish(:rand.uniform(6000), "new comment #{n}")
    :ets.update_counter(:meetups_counts, :updates, 1)
    Process.send_after(self(), :news, 20)
    {:noreply, n + 1}
  end
end

defmodule Meetups.Listener do
  def run do
    {:ok, l} = :gen_tcp.listen(0, [:binary, packet: :line, active: false, ip: {127, 0, 0, 1}, reuseaddr: true, nodelay: true, backlog: 128])
    {:ok, port} = :inet.port(l)
    File.write!(System.fetch_env!("PORT_FILE"), Integer.to_string(port))
    accept(l)
  end

  defp accept(l) do
    {:ok, s} = :gen_tcp.accept(l)
    {:ok, pid} = Task.Supervisor.start_child(Meetups.Requests, fn -> serve(s) end)
    :ok = :gen_tcp.controlling_process(s, pid)
    accept(l)
  end

  defp serve(s) do
    case :gen_tcp.recv(s, 0) do
      {:ok, line} ->
        [m, user] = String.split(line)
        :ets.update_counter(:meetups_counts, :asked, 1)
        :ok = :gen_tcp.send(s, if(Meetups.Subscription.following?(String.to_integer(m), user), do: "yes\n", else: "no\n"))
        serve(s)

      {:error, _} ->
        :ok
    end
  end
end
