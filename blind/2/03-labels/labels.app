{application, labels,
 [{description, "Takes in the events of the shops"}, {vsn, "0.14.2"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Labels.Application', []}}]}.
