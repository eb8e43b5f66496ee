{application, gateway,
 [{description, "Tariff gateway: rates call records"}, {vsn, "9.1.0"},
  {modules, [gateway_app, gateway_sup, gateway_conn_sup, gateway_conn, gateway_listener, gateway_tariff, gateway_stats]},
  {registered, [gateway_sup, gateway_conn_sup, gateway_listener, gateway_tariff, gateway_stats]},
  {applications, [kernel, stdlib]},
  {mod, {gateway_app, []}}]}.
