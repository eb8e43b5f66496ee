{application, hall,
 [{description, "Ticket hall: one process per visitor session"},
  {vsn, "2.4.1"},
  {modules, ['Elixir.Hall.Application', 'Elixir.Hall.Inventory', 'Elixir.Hall.Session', 'Elixir.Hall.SessionSupervisor',
             'Elixir.Hall.Stats', 'Elixir.Hall.Prices']},
  {registered, ['Elixir.Hall.Supervisor', 'Elixir.Hall.SessionSupervisor', 'Elixir.Hall.Stats', 'Elixir.Hall.Prices']},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Hall.Application', []}}]}.
