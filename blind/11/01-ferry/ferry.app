{application, ferry, [{description, "ferry"}, {vsn, "3.1.0"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Ferry.Application', []}}]}.
