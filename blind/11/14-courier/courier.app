{application, courier, [{description, "courier"}, {vsn, "2.8.1"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Courier.Application', []}}]}.
