{application, presence,
 [{description, "Who is there"}, {vsn, "1.3.1"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Presence.Application', []}}]}.
