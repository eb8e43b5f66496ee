{application, posters,
 [{description, "Pictures of the shop, kept in memory"}, {vsn, "1.9.4"}, {modules, []},
  {registered, [posters_sup, posters_cache, posters_listener]},
  {applications, [kernel, stdlib]}, {mod, {posters_sup, []}}, {env, [{cache_mb, 620}]}]}.
