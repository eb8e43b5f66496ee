{application, auction, [{description, "auction"}, {vsn, "5.0.3"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {auction_app, []}}]}.
