{application, gallery,
 [{description, "Picture galleries"}, {vsn, "1.9.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Gallery.Application', []}}]}.
