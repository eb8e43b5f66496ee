{application, scooter, [{description, "scooter"}, {vsn, "3.7.0"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {scooter_app, []}}]}.
