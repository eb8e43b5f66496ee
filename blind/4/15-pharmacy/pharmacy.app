{application, pharmacy, [{vsn, "1.0.0"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib]}, {mod, {pharmacy_app, []}}]}.
