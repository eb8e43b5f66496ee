{application, quotes,
 [{description, "Insurance quotes"}, {vsn, "2.11.0"},
  {modules, [quotes_app, quotes_sup, quotes_desk, quotes_tariff, quotes_risk, quotes_rules, quotes_customers, quotes_support]},
  {registered, [quotes_sup, quotes_rules, quotes_stats]},
  {applications, [kernel, stdlib, runtime_tools]},
  {mod, {quotes_app, []}}]}.
