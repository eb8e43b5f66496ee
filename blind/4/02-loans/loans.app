{application, loans, [{vsn, "1.0.0"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib, mnesia]}, {mod, {loans_app, []}}]}.
