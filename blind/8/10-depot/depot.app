{application, depot, [{vsn, "1.4.2"}, {modules, []}, {registered, []}, {applications, [kernel, stdlib]}, {mod, {depot_app, []}}]}.
