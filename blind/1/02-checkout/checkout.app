{application, checkout,
 [{description, "Checkout service"}, {vsn, "1.9.0"},
  {modules, ['Elixir.Checkout.Application', 'Elixir.Checkout.CartStore', 'Elixir.Checkout.Api', 'Elixir.Checkout.Tax', 'Elixir.Checkout.Metrics']},
  {registered, ['Elixir.Checkout.Supervisor']},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Checkout.Application', []}}]}.
