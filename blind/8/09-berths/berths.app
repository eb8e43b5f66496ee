{application, berths, [{vsn, "0.9.1"}, {modules, []}, {registered, []}, {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Berths.App', []}}]}.
