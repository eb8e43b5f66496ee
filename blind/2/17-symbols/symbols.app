{application, symbols,
 [{description, "Instruments, and who watches them"}, {vsn, "3.3.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Symbols.Application', []}}]}.
