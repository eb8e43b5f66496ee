{application, pagecache,
 [{description, "Cache of rendered pages"}, {vsn, "3.3.0"},
  {modules, ['Elixir.PageCache.Application', 'Elixir.PageCache', 'Elixir.PageCache.Janitor', 'Elixir.PageCache.Renderer']},
  {registered, ['Elixir.PageCache.Supervisor', 'Elixir.PageCache.Janitor']},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.PageCache.Application', []}}]}.
