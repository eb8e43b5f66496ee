{application, clinic, [{description, "clinic"}, {vsn, "1.8.0"}, {modules, [clinic_app, clinic_sup, clinic_listener, clinic_appointments, clinic_api]}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {clinic_app, []}}]}.
