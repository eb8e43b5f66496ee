{application, bookkeeping, [{description, "bookkeeping"}, {vsn, "7.0.2"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Bookkeeping.Application', []}}]}.
