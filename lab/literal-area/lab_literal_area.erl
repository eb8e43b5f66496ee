%% Persistent terms that nearly fill a literal area which a flag has made small. The VM terminates if a literal does not
%% fit. Healthy: the area has its default size.
-module(lab_literal_area).

-export([start/1, establish/1]).

-define(MB, (1024 * 1024)).
-define(KB, 1024).

%% The size of the area when sick, see lab.toml; when healthy, as much is put into one of a gigabyte.
-define(AREA_MB, 48).

%% Reserved for the VM, modules and the observer. Nothing more is put when less is left.
-define(RESERVE_KB, 1200).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    FullPct = lab:int(Context, full_pct, 94, 97),
    TermKb = lab:int(Context, term_kb, 80, 300),
    ReadsPerS = lab:int(Context, reads_per_s, 100, 1000),
    [Loader | Readers] = Names = lab:names(Context, processes, lab:int(Context, processes, 3, 6)),
    Key = lab:name(Context, key),
    Filled = lab:counter(),
    Upto = min(?AREA_MB * ?MB * FullPct div 100, (?AREA_MB * ?KB - ?RESERVE_KB) * ?KB),
    Pid = lab:start(Loader, fun() ->
        fill(Key, 1, TermKb, Upto),
        lab:count(Filled),
        receive never -> ok end
    end),
    lab:wait_until(filled, fun() -> lab:total(Filled) =:= 1 end),
    Terms = length([K || {K, _} <- persistent_term:get(), is_tuple(K), element(1, K) =:= Key]),
    [
        lab:start(Reader, fun() ->
            lab:at_rate(ReadsPerS, fun(Due) ->
                [persistent_term:get({Key, rand:uniform(Terms)}) || _ <- lists:seq(1, Due)]
            end)
        end)
     || Reader <- Readers
    ],
    #{used := Used, total := Total} = area(),
    #{
        sick => none,
        details => #{
            key => Key, terms => Terms, term_kb => TermKb, full_pct => FullPct, loader => Loader, pid => Pid,
            processes => {list, lab:shuffle(Context, order, Names)}, reads_per_s => ReadsPerS,
            used_kb => Used div ?KB, total_kb => Total div ?KB
        }
    }.

fill(Key, N, TermKb, Upto) ->
    %% From 60 to 140 per cent; a list cell has 16 bytes.
    Kb = TermKb * (60 + rand:uniform(80)) div 100,
    #{used := Used, total := Total} = area(),
    Used + Kb * ?KB < Upto andalso Total - Used > (Kb + ?RESERVE_KB) * ?KB andalso begin
        persistent_term:put({Key, N}, lists:seq(1, Kb * ?KB div 16)),
        fill(Key, N + 1, TermKb, Upto)
    end.

%% Size of the area, and the bytes of it that carriers use.
area() ->
    {literal_mmap, Area} = lists:keyfind(literal_mmap, 1, erlang:system_info({allocator, erts_mmap})),
    {supercarrier, Parts} = lists:keyfind(supercarrier, 1, Area),
    {sizes, Sizes} = lists:keyfind(sizes, 1, Parts),
    #{used => proplists:get_value(used, Sizes), total => proplists:get_value(total, Sizes)}.
