{application, exchange,
 [{description, "A small exchange for certificates"}, {vsn, "1.6.2"},
  {modules, [exchange_app, exchange_sup, exchange_book, exchange_trades, exchange_account, exchange_accounts, exchange_listener, exchange_conn]},
  {registered, [exchange_sup, exchange_book, exchange_trades, exchange_accounts, exchange_listener]},
  {applications, [kernel, stdlib]},
  {mod, {exchange_app, []}}]}.
