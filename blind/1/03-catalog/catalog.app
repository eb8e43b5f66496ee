{application, catalog,
 [{description, "Product catalogue, fed from supplier price lists"}, {vsn, "0.14.2"},
  {modules, ['Elixir.Catalog.Application', 'Elixir.Catalog.Store', 'Elixir.Catalog.Importer', 'Elixir.Catalog.PriceList', 'Elixir.Catalog.Search']},
  {registered, ['Elixir.Catalog.Supervisor', 'Elixir.Catalog.Store', 'Elixir.Catalog.Importer']},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Catalog.Application', []}}]}.
