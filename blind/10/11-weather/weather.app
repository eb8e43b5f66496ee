{application, weather, [{description, "weather"}, {vsn, "2.3.0"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Weather.Application', []}}]}.
