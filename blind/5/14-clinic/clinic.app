{application, clinic, [{description, "appointments of a clinic"}, {vsn, "0.42.0"}, {modules, ['Elixir.Clinic','Elixir.Clinic.Sup','Elixir.Clinic.Pool','Elixir.Clinic.Conn','Elixir.Clinic.Figures','Elixir.Clinic.Desk','Elixir.Clinic.Doors','Elixir.Clinic.Log']},
 {registered, []}, {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Clinic', []}}]}.
