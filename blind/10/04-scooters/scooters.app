{application, scooters, [{description, "scooters"}, {vsn, "1.4.2"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {scooters_app, []}}]}.
