{application, greenhouse,
 [{description, "Bus of the measured values"}, {vsn, "0.9.1"}, {modules, []},
  {registered, [greenhouse_sup, greenhouse_bus, greenhouse_historian, greenhouse_climate, greenhouse_listener]},
  {applications, [kernel, stdlib]}, {mod, {greenhouse_sup, []}}]}.
