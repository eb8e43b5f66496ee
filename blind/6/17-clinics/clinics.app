{application, clinics,
 [{description, "Video consultations"}, {vsn, "1.3.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Clinics.Application', []}}]}.
