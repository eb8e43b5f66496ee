{application, photoid,
 [{description, "Finds photos that were uploaded before"}, {vsn, "1.2.2"},
  {modules, [photoid_app, photoid_sup, photoid_index, photoid_worker, photoid_listener, photoid_conn, phash]},
  {registered, [photoid_sup, photoid_index, photoid_listener, photoid_worker_1, photoid_worker_2]},
  {applications, [kernel, stdlib]},
  {mod, {photoid_app, []}}]}.
