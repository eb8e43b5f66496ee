{application, thermostats,
 [{description, "Takes the readings of the thermostats"}, {vsn, "0.8.1"},
  {modules, [thermostats_app, thermostats_sup, thermostats_udp, thermostats_rooms, thermostats_hourly]},
  {registered, [thermostats_sup, thermostats_udp, thermostats_rooms, thermostats_hourly]},
  {applications, [kernel, stdlib]},
  {mod, {thermostats_app, []}}]}.
