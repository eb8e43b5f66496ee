{application, signup,
 [{description, "Registration for the newsletter"}, {vsn, "0.5.3"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Signup.Application', []}}]}.
