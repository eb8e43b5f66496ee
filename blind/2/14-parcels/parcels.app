{application, parcels,
 [{description, "Where the parcels are"}, {vsn, "2.2.2"},
  {modules, [parcels_app, parcels_sup, parcels_db, parcels_scanner, parcels_board, parcels_track]},
  {registered, [parcels_sup, parcels_board]},
  {applications, [kernel, stdlib, mnesia]},
  {mod, {parcels_app, []}}]}.
