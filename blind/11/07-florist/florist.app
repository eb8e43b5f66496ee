{application, florist, [{description, "florist"}, {vsn, "2.2.1"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {florist_app, []}}]}.
