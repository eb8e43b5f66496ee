{application, scores, [{vsn, "1.0.0"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib]}, {mod, {scores_app, []}}]}.
