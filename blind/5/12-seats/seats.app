{application, seats, [{description, "seats of a theatre"}, {vsn, "2.0.4"}, {modules, ['Elixir.Seats','Elixir.Seats.Sup','Elixir.Seats.Plan','Elixir.Seats.Reservations','Elixir.Seats.Terminal','Elixir.Seats.Box','Elixir.Seats.Report']},
 {registered, []}, {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Seats', []}}]}.
