{application, rooms,
 [{description, "Chat rooms with history"}, {vsn, "4.4.0"},
  {modules, [rooms_app, rooms_sup, rooms_room_sup, rooms_room, rooms_members]},
  {registered, [rooms_sup, rooms_room_sup]},
  {applications, [kernel, stdlib]},
  {env, [{rooms, 20}, {history, 18000}]},
  {mod, {rooms_app, []}}]}.
