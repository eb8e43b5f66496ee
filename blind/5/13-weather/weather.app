{application, weather, [{description, "weather stations"}, {vsn, "7.1.0"}, {modules, ['Elixir.Weather','Elixir.Weather.Sup','Elixir.Weather.Cells','Elixir.Weather.Collector','Elixir.Weather.Station','Elixir.Weather.Stations','Elixir.Weather.Forecast','Elixir.Weather.Front']},
 {registered, []}, {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Weather', []}}]}.
