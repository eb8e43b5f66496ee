{application, turnstile, [{description, "turnstile"}, {vsn, "3.3.3"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {turnstile_app, []}}]}.
