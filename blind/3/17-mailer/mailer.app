{application, mailer,
 [{description, "Sends the mails of the portal"}, {vsn, "1.12.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Mailer.Application', []}}]}.
