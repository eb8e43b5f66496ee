{application, branches, [{description, "branches"}, {vsn, "1.4.2"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {branches_app, []}}]}.
