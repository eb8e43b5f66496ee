{application, parking,
 [{description, "Free places of the car parks"}, {vsn, "5.0.2"}, {modules, []},
  {registered, [parking_sup, parking_lots, parking_places_sup, parking_gateway, parking_watchdog]},
  {applications, [kernel, stdlib]}, {mod, {parking_sup, []}}]}.
