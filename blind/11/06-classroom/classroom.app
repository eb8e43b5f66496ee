{application, classroom, [{description, "classroom"}, {vsn, "0.9.4"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib, elixir, logger]}, {mod, {'Elixir.Classroom.Application', []}}]}.
