{application, dispatch, [{description, "parcel dispatch"}, {vsn, "2.7.5"}, {modules, ['Elixir.Dispatch','Elixir.Dispatch.Sup','Elixir.Dispatch.LineSup','Elixir.Dispatch.Codes','Elixir.Dispatch.Scale','Elixir.Dispatch.Belt','Elixir.Dispatch.Labels','Elixir.Dispatch.Orders']},
 {registered, []}, {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Dispatch', []}}]}.
