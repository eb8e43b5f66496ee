{application, members,
 [{description, "Members and visits of the sports clubs"}, {vsn, "1.2.0"},
  {modules, [members_app, members_sup, members_db, members_door, members_cards, members_link]},
  {registered, [members_sup, members_cards, members_link]},
  {applications, [kernel, stdlib, mnesia]},
  {mod, {members_app, []}}]}.
