{application, grain, [{description, "grain"}, {vsn, "2.2.6"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Grain.Application', []}}]}.
