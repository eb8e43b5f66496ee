{application, stadium, [{description, "stadium"}, {vsn, "4.0.7"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {stadium_app, []}}]}.
