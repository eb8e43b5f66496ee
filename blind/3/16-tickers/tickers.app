{application, tickers,
 [{description, "Share prices for the screens"}, {vsn, "2.2.2"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Tickers.Application', []}}]}.
