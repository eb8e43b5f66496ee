{application, payroll, [{description, "payroll"}, {vsn, "2.3.0"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Payroll.Application', []}}]}.
