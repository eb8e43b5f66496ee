{application, notices, [{description, "notices to partners"}, {vsn, "2.2.1"}, {modules, ['Elixir.Notices','Elixir.Notices.Sup','Elixir.Notices.Partners','Elixir.Notices.Courier','Elixir.Notices.Events','Elixir.Notices.Templates','Elixir.Notices.Dashboard']},
 {registered, []}, {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Notices', []}}]}.
