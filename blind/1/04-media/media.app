{application, media,
 [{description, "Uploads: previews of what users upload"}, {vsn, "3.0.7"},
  {modules, ['Elixir.Media.Application', 'Elixir.Media.Preview', 'Elixir.Media.PreviewQueue', 'Elixir.Media.Uploads', 'Elixir.Media.Janitor']},
  {registered, ['Elixir.Media.Supervisor', 'Elixir.Media.PreviewQueue', 'Elixir.Media.Uploads', 'Elixir.Media.Janitor']},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Media.Application', []}}]}.
