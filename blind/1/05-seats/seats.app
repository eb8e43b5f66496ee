{application, seats,
 [{description, "Seat reservation"}, {vsn, "5.2.0"},
  {modules, ['Elixir.Seats.Application', 'Elixir.Seats.Allocator', 'Elixir.Seats.Plan', 'Elixir.Seats.Payments', 'Elixir.Seats.Stats']},
  {registered, ['Elixir.Seats.Supervisor', 'Elixir.Seats.Plan', 'Elixir.Seats.Stats']},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Seats.Application', []}}]}.
