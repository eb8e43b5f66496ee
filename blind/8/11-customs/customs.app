{application, customs, [{vsn, "1.4.2"}, {modules, []}, {registered, []}, {applications, [kernel, stdlib]}, {mod, {customs_app, []}}]}.
