{application, insurance,
 [{description, "Offers for car insurance"}, {vsn, "6.1.3"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Insurance.Application', []}}]}.
