{application, ledger,
 [{description, "Books the payments into the core bank"}, {vsn, "7.0.1"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Ledger.Application', []}}]}.
