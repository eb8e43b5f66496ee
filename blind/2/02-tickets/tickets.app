{application, tickets,
 [{description, "Seats and prices"}, {vsn, "1.9.0"},
  {modules, [tickets_app, tickets_sup, tickets_listener, tickets_conn, tickets_price, tickets_stats]},
  {registered, [tickets_sup, tickets_listener, tickets_stats]},
  {applications, [kernel, stdlib]},
  {mod, {tickets_app, []}}]}.
