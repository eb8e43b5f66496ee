{application, coupons, [{description, "coupons"}, {vsn, "2.3.0"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Coupons.Application', []}}]}.
