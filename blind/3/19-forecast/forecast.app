{application, forecast,
 [{description, "Local weather forecasts"}, {vsn, "3.0.4"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Forecast.Application', []}}]}.
