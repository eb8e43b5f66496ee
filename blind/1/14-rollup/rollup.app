{application, rollup,
 [{description, "Usage events and their hourly sums"}, {vsn, "1.7.1"},
  {modules, [rollup_app, rollup_sup, rollup_events, rollup_hourly, rollup_query]},
  {registered, [rollup_sup, rollup_events, rollup_hourly]},
  {applications, [kernel, stdlib]},
  {mod, {rollup_app, []}}]}.
