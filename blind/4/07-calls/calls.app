{application, calls, [{vsn, "1.0.0"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib]}, {mod, {calls_app, []}}]}.
