{application, lifts,
 [{description, "Supervision of lifts: counters and histograms"}, {vsn, "2.3.3"}, {modules, []},
  {registered, [lifts_sup, lifts_probes_sup, lifts_listener, lifts_report]},
  {applications, [kernel, stdlib]}, {mod, {lifts_sup, []}},
  {env, [{lifts, 320}, {kinds, [door, travel, load, vibration]}, {probe_opts, [{min_heap_size, 40000}]}]}]}.
