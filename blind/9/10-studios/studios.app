{application, studios,
 [{description, "Booking of recording studios"}, {vsn, "0.8.1"},
  {modules, [studios_app, studios_sup, studios_calendar, studios_store, studios_prices, studios_events, studios_prices_h, studios_stats_h, studios_listener, studios_conn]},
  {registered, [studios_sup, studios_calendar, studios_store, studios_prices, studios_events, studios_listener]},
  {applications, [kernel, stdlib]},
  {mod, {studios_app, []}}]}.
