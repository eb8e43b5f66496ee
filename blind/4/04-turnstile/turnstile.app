{application, turnstile, [{vsn, "1.0.0"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib]}, {mod, {turnstile_app, []}}]}.
