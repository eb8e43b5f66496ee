{application, kitchens, [{description, "kitchens"}, {vsn, "1.4.2"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {kitchens_app, []}}]}.
