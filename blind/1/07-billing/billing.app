{application, billing,
 [{description, "Invoices"}, {vsn, "6.3.0"},
  {modules, [billing_app, billing_sup, billing_db, billing_report, billing_stats]},
  {registered, [billing_sup, billing_report, billing_stats]},
  {applications, [kernel, stdlib, mnesia]},
  {env, [{report_interval, 400}, {page, 500}]},
  {mod, {billing_app, []}}]}.
