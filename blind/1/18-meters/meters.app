{application, meters,
 [{description, "Electricity meters: a session each, readings every 15 minutes"}, {vsn, "5.0.3"},
  {modules, [meters_app, meters_sup, meters_session_sup, meters_session, meters_batcher, meters_registry]},
  {registered, [meters_sup, meters_session_sup, meters_batcher]},
  {applications, [kernel, stdlib]},
  {env, [{meters, 30000}]},
  {mod, {meters_app, []}}]}.
