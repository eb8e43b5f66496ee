{application, presence, [{description, "who is on line"}, {vsn, "9.0.1"}, {modules, [presence_app, presence_sup, presence_watch, presence_user, presence_gate, presence_friends, presence_printer]},
 {registered, [presence_sup, presence_watch, presence_gate, presence_friends, presence_printer]}, {applications, [kernel, stdlib]}, {mod, {presence_app, []}}]}.
