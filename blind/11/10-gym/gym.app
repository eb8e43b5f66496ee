{application, gym, [{description, "gym"}, {vsn, "1.12.0"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Gym.Application', []}}]}.
