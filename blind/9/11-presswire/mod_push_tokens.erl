%% Push notifications for our app: every client sends the token and the abilities of its device after log-in.
-module(mod_push_tokens).
-behaviour(gen_mod).
-export([start/2, stop/1, reload/3, depends/2, mod_options/1, mod_doc/0]).
-export([process_iq/1, decode_iq_subel/1, offline_message/1]).
-include_lib("p1_xmpp/include/xmpp.hrl").

-define(NS, <<"urn:presswire:push">>).
-define(CACHE, push_tokens).

start(Host, _Opts) ->
    ets_cache:new(?CACHE, []),
    ejabberd_hooks:add(offline_message_hook, Host, ?MODULE, offline_message, 20),
    gen_iq_handler:add_iq_handler(ejabberd_sm, Host, ?NS, ?MODULE, process_iq).
stop(Host) ->
    gen_iq_handler:remove_iq_handler(ejabberd_sm, Host, ?NS),
    ejabberd_hooks:delete(offline_message_hook, Host, ?MODULE, offline_message, 20).
reload(_, _, _) -> ok.
depends(_, _) -> [].
mod_options(_) -> [].
mod_doc() -> #{}.

decode_iq_subel(El) -> El.

process_iq(#iq{type = set, from = From, sub_els = [El]} = IQ) ->
    {U, S, R} = jid:tolower(From),
    ets_cache:insert(?CACHE, {U, S, R}, {fxml:get_subtag_cdata(El, <<"token">>), fxml:get_subtag(El, <<"device">>), erlang:system_time(second)}),
    xmpp:make_iq_result(IQ);
process_iq(IQ) ->
    xmpp:make_error(IQ, xmpp:err_not_allowed()).

%% a message for somebody who is away: push it to the device he used last
offline_message({_, #message{to = To, meta = #{push_resource := R}}} = Acc) ->
    {U, S, _} = jid:tolower(To),
    case ets_cache:lookup(?CACHE, {U, S, R}) of
        {ok, {Token, _, _}} -> push(Token);
        _ -> ok
    end,
    Acc;
offline_message(Acc) -> Acc.

push(_Token) -> ok.
