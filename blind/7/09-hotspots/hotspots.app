{application, hotspots,
 [{description, "Who is in the Wi-Fi of the city"}, {vsn, "1.12.0"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Hotspots.Application', []}}]}.
