{application, meters, [{description, "meters"}, {vsn, "4.4.0"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Meters.Application', []}}]}.
