{application, surveys,
 [{description, "Evaluates surveys"}, {vsn, "2.0.9"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Surveys.Application', []}}]}.
