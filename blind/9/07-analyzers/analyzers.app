{application, analyzers,
 [{description, "Takes the results of the laboratory's devices"}, {vsn, "5.0.3"},
  {modules, [analyzers_app, analyzers_sup, analyzers_listener, analyzers_session_sup, analyzers_session, analyzers_results, analyzers_limits]},
  {registered, [analyzers_sup, analyzers_listener, analyzers_session_sup, analyzers_results, analyzers_limits]},
  {applications, [kernel, stdlib]},
  {mod, {analyzers_app, []}}]}.
