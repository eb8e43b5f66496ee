{application, cinema,
 [{description, "Seats of the cinemas"}, {vsn, "1.30.5"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Cinema.Application', []}}]}.
