{application, vault, [{description, "vault"}, {vsn, "1.4.2"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {vault_app, []}}]}.
