{application, tiles, [{description, "tiles"}, {vsn, "1.4.2"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {tiles_app, []}}]}.
