{application, grants, [{description, "grants"}, {vsn, "2.3.0"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib, elixir, logger, xmerl]}, {mod, {'Elixir.Grants.Application', []}}]}.
