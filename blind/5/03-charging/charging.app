{application, charging, [{description, "charging points"}, {vsn, "4.1.3"}, {modules, ['Elixir.Charging','Elixir.Charging.Sup','Elixir.Charging.Tariffs','Elixir.Charging.Links','Elixir.Charging.Link','Elixir.Charging.Listener','Elixir.Charging.Profile','Elixir.Charging.Billing']},
 {registered, []}, {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Charging', []}},
 {env, [{link_idle_ms, 4000}, {acceptors, 4}, {max_links, 5000}, {billing_interval_ms, 5000}]}]}.
