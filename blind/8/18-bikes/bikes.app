{application, bikes, [{vsn, "1.4.2"}, {modules, []}, {registered, []}, {applications, [kernel, stdlib]}, {mod, {bikes_app, []}}]}.
