{application, clinic, [{vsn, "1.0.0"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Clinic.Application', []}}]}.
