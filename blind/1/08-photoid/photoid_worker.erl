%% Hashes the uploads, one after the other.
-module(photoid_worker).
-behaviour(gen_server).
-export([start_link/1, upload/4]).
-export([init/1, handle_call/3, handle_cast/2]).

start_link(Name) -> gen_server:start_link({local, Name}, ?MODULE, [], []).

upload(Id, Pixels, W, H) ->
    Worker = element(1 + Id rem 2, {photoid_worker_1, photoid_worker_2}),
    gen_server:call(Worker, {hash, Id, Pixels, W, H}, 30000).

init([]) -> {ok, 0}.
handle_call({hash, Id, Pixels, W, H}, _From, N) ->
    Hash = phash:hash(Pixels, W, H),
    photoid_index:insert(Id, Hash),
    {reply, Hash, N + 1}.
handle_cast(_, N) -> {noreply, N}.
