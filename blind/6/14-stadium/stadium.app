{application, stadium,
 [{description, "Live tickers of matches"}, {vsn, "4.1.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Stadium.Application', []}}]}.
