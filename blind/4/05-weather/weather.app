{application, weather, [{vsn, "1.0.0"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib]}, {mod, {weather_app, []}}]}.
