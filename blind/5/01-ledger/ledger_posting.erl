%% a posting must not fall between two batches of the export: all nodes agree by a lock
-module(ledger_posting).
-export([post/2]).
post(Account, Amount) ->
    global:trans({ledger, self()}, fun() -> ledger_book:apply_posting(Account, Amount) end).
