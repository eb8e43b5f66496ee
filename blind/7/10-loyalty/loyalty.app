{application, loyalty,
 [{description, "Points of the customers"}, {vsn, "4.4.0"}, {modules, []},
  {registered, [loyalty_sup, loyalty_stats, loyalty_listener]},
  {applications, [kernel, stdlib, mnesia]}, {mod, {loyalty_sup, []}}]}.
