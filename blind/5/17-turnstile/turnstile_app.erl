-module(turnstile_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_, _) ->
    %% every passage has to be in the log (the federation's rule): nothing may be dropped
    ok = logger:add_handler(passages, logger_std_h,
        #{config => #{file => os:getenv("PASSAGES"), max_no_bytes => 20000000, max_no_files => 2, sync_mode_qlen => 10000000, drop_mode_qlen => 10000000, flush_qlen => 20000000, burst_limit_enable => false, filesync_repeat_interval => no_repeat},
          filters => [{only_passages, {fun(#{meta := M} = E, _) -> case M of #{passage := true} -> E; _ -> stop end end, []}}],
          formatter => {logger_formatter, #{single_line => true, template => [time, " ", msg, "\n"]}}}),
    ok = logger:add_handler_filter(default, no_passages, {fun(#{meta := M} = E, _) -> case M of #{passage := true} -> stop; _ -> E end end, []}),
    ok = logger:set_primary_config(level, info),
    turnstile_sup:start_link().
stop(_) -> logger:remove_handler(passages).
