{application, timetable,
 [{description, "Departures of the regional buses"}, {vsn, "2.6.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Timetable.Application', []}}]}.
