{application, weighbridge, [{vsn, "1.4.2"}, {modules, []}, {registered, []}, {applications, [kernel, stdlib]}, {mod, {weighbridge_app, []}}]}.
