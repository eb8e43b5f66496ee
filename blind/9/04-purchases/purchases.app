{application, purchases,
 [{description, "Intake of purchase orders"}, {vsn, "3.2.1"},
  {modules, [purchases_app, purchases_sup, purchases_listener, purchases_conn, purchases_json, purchases_intake, purchases_limits]},
  {registered, [purchases_sup, purchases_listener, purchases_intake, purchases_limits]},
  {applications, [kernel, stdlib]},
  {mod, {purchases_app, []}}]}.
