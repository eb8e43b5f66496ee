{application, kiosk,
 [{description, "Prints photographs that people bring along"}, {vsn, "3.3.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Kiosk.Application', []}}]}.
