%% Stores of sessions, each a process with an ETS table by id, that are asked for the sessions of a user. One of them
%% scans its whole table for that. Healthy: it has a second table from users to ids, as the others do.
-module(lab_table_scan).

-export([start/1, establish/1]).

%% Searches whose median is the cost of one.
-define(SAMPLE_SEARCHES, 15).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Count = lab:int(Context, stores, 2, 4),
    Sessions = lab:int(Context, sessions, 20000, 40000),
    %% Share of one CPU that searching takes if each request is a search.
    BusyPct = lab:int(Context, busy_pct, 35, 45),
    Users = Sessions div lab:int(Context, sessions_of_a_user, 2, 5),
    Names = lab:names(Context, store, Count),
    Which = lab:pick(Context, which, Names),
    Ready = lab:counter(),
    Answered = lab:counter(),
    Stores = [
        lab:start(Name, fun() ->
            Store = fill(Sessions, Users),
            lab:count(Ready),
            answer(Store, lab:sick(Context) andalso Name =:= Which, Answered)
        end)
     || Name <- Names
    ],
    lab:wait_until(stores, fun() -> lab:total(Ready) =:= Count end),
    PerS = max(5, BusyPct * 10000 div search_us(Sessions, Users)),
    [
        lab:start(fun() ->
            lab:at_rate(PerS, fun(Due) -> [Store ! {of_user, rand:uniform(Users)} || _ <- lists:seq(1, Due)] end)
        end)
     || Store <- Stores
    ],
    lab:wait_until(answers, fun() -> lab:total(Answered) > 2 * PerS * Count end),
    #{
        sick => lab:culprit(Context, Which),
        details => #{stores => {list, Names}, sessions => Sessions, users => Users, asked_per_s => PerS}
    }.

%% Sessions by id, and ids by user.
fill(Sessions, Users) ->
    ById = ets:new(sessions, [set, {read_concurrency, true}]),
    ByUser = ets:new(sessions_by_user, [bag]),
    [
        begin
            User = 1 + Id rem Users,
            true = ets:insert(ById, {Id, User, Id * 7919 rem 100003, {seen, Id}}),
            true = ets:insert(ByUser, {User, Id})
        end
     || Id <- lists:seq(1, Sessions)
    ],
    {ById, ByUser}.

answer({ById, ByUser} = Store, IsSearched, Answered) ->
    receive
        {of_user, User} ->
            [{_, User, _, _} | _] =
                case IsSearched of
                    true -> search(ById, User);
                    false -> [Session || {_, Id} <- ets:lookup(ByUser, User), Session <- ets:lookup(ById, Id)]
                end,
            lab:count(Answered)
    end,
    answer(Store, IsSearched, Answered).

search(ById, User) -> ets:match_object(ById, {'_', User, '_', '_'}).

%% Microseconds per search.
search_us(Sessions, Users) ->
    {ById, ByUser} = fill(Sessions, Users),
    Times = lists:sort([element(1, timer:tc(fun() -> search(ById, rand:uniform(Users)) end)) || _ <- lists:seq(1, ?SAMPLE_SEARCHES)]),
    ets:delete(ById),
    ets:delete(ByUser),
    max(1, lists:nth(?SAMPLE_SEARCHES div 2 + 1, Times)).
