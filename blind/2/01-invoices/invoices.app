{application, invoices,
 [{description, "Invoices as PDF text"}, {vsn, "2.4.1"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Invoices.Application', []}}]}.
