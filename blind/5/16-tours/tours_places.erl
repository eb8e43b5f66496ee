-module(tours_places).
-behaviour(gen_server).
-export([start_link/0, take/2, give_back/1, programme/1]).
-export([init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
take(Tour, N) -> gen_server:call(?MODULE, {take, Tour, N}).
give_back(#{tour := T, persons := N}) -> gen_server:cast(?MODULE, {back, T, N}).
programme(Tour) -> [{stop, K, "station " ++ integer_to_list(Tour * K), K * 20} || K <- lists:seq(1, 12)].
init([]) -> {ok, #{}}.
handle_call({take, T, N}, _, M) -> Next = maps:get(T, M, 0), {reply, lists:seq(Next, Next + N - 1), M#{T => Next + N}}.
handle_cast({back, T, N}, M) -> {noreply, maps:update_with(T, fun(X) -> X - N end, 0, M)}.
