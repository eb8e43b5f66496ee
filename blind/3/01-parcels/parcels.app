{application, parcels,
 [{description, "Talks with the parcel lockers"}, {vsn, "3.2.0"},
  {modules, [parcels_app, parcels_sup, parcels_listener, parcels_conns, parcels_locker, parcels_store, parcels_report]},
  {registered, [parcels_sup, parcels_listener, parcels_conns, parcels_store, parcels_report]},
  {applications, [kernel, stdlib]},
  {env, [{max_connections, 150}, {acceptors, 6}, {backlog, 128}]},
  {mod, {parcels_app, []}}]}.
