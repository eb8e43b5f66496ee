{application, ledgers, [{vsn, "1.4.2"}, {modules, []}, {registered, []}, {applications, [kernel, stdlib]}, {mod, {ledgers_app, []}}]}.
