{application, racks, [{description, "racks"}, {vsn, "1.4.2"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {racks_app, []}}]}.
