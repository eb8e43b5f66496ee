{application, checkout,
 [{description, "Tills of the shops"}, {vsn, "4.4.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Checkout.Application', []}}]}.
