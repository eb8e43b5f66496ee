{application, newsletters,
 [{description, "Sends the newsletters of the shops"}, {vsn, "0.21.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Newsletters.Application', []}}]}.
