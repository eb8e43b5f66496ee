{application, museum, [{description, "museum"}, {vsn, "2.5.0"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {museum_app, []}}]}.
