{application, storefront,
 [{description, "Storefront"}, {vsn, "0.31.0"},
  {modules, ['Elixir.Storefront.Application', 'Elixir.Storefront.Repo', 'Elixir.Storefront.Repo.Pool', 'Elixir.Storefront.Repo.Connection',
             'Elixir.Storefront.Orders', 'Elixir.Storefront.Shipping', 'Elixir.Storefront.Web', 'Elixir.Storefront.Telemetry']},
  {registered, ['Elixir.Storefront.Supervisor', 'Elixir.Storefront.Repo.Pool', 'Elixir.Storefront.Telemetry']},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Storefront.Application', []}}]}.
