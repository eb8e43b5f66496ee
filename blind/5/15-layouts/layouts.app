{application, layouts, [{description, "sets the pages of a newspaper"}, {vsn, "3.9.1"}, {modules, ['Elixir.Layouts','Elixir.Layouts.Sup','Elixir.Layouts.Program','Elixir.Layouts.Pages','Elixir.Layouts.Editor','Elixir.Layouts.Fonts']},
 {registered, []}, {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Layouts', []}}]}.
