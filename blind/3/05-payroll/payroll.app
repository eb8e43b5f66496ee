{application, payroll,
 [{description, "Computes and files pay slips"}, {vsn, "6.2.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Payroll.Application', []}}]}.
