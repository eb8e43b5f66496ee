{application, matchday, [{description, "matchday"}, {vsn, "1.4.2"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {matchday_app, []}}]}.
