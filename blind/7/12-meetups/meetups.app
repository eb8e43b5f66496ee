{application, meetups,
 [{description, "Live pages of the meetups"}, {vsn, "3.7.2"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Meetups.Application', []}}]}.
