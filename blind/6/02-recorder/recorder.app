{application, recorder,
 [{description, "Records the calls of the hotline"}, {vsn, "3.2.1"},
  {modules, []}, {registered, []}, {applications, [kernel, stdlib]}, {mod, {recorder_app, []}}]}.
