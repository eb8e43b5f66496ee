{application, postroom,
 [{description, "Takes in mail for 130 customers"}, {vsn, "0.8.6"}, {modules, []},
  {registered, [postroom_sup, postroom_archive, postroom_pulse, postroom_listener]},
  {applications, [kernel, stdlib, crypto]}, {mod, {postroom_sup, []}}]}.
