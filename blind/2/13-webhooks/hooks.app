{application, hooks,
 [{description, "Delivers webhooks to the customers"}, {vsn, "1.12.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Hooks.Application', []}}]}.
