{application, tracks, [{description, "music catalogue"}, {vsn, "1.8.0"}, {modules, ['Elixir.Tracks','Elixir.Tracks.Sup','Elixir.Tracks.Store','Elixir.Tracks.Tags','Elixir.Tracks.Import','Elixir.Tracks.Search','Elixir.Tracks.Plays']},
 {registered, []}, {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Tracks', []}}]}.
