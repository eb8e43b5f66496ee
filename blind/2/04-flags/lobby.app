{application, lobby,
 [{description, "Sessions of the players"}, {vsn, "5.0.3"},
  {modules, [lobby_app, lobby_sup, lobby_session, lobby_session_sup, lobby_flags, lobby_presence, lobby_players]},
  {registered, [lobby_sup, lobby_session_sup, lobby_flags, lobby_presence]},
  {applications, [kernel, stdlib]},
  {mod, {lobby_app, []}}]}.
