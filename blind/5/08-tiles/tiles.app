{application, tiles, [{description, "map tiles"}, {vsn, "12.2.0"}, {modules, ['Elixir.Tiles','Elixir.Tiles.Sup','Elixir.Tiles.Store','Elixir.Tiles.Painter','Elixir.Tiles.Front','Elixir.Tiles.Usage','Elixir.Tiles.Expire']},
 {registered, []}, {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Tiles', []}}]}.
