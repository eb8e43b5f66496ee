{application, profiles,
 [{description, "User profiles, replicated to the other site"}, {vsn, "2.0.5"},
  {modules, [profiles_app, profiles_sup, profiles_store, profiles_replica, profiles_follower, profiles_api]},
  {registered, [profiles_sup, profiles_store, profiles_replica]},
  {applications, [kernel, stdlib]},
  {env, [{peer, undefined}]},
  {mod, {profiles_app, []}}]}.
