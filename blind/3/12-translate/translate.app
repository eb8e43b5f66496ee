{application, translate,
 [{description, "Translates product texts"}, {vsn, "0.9.9"},
  {modules, [translate_app, translate_sup, translate_words, translate_memory, translate_worker, translate_shop]},
  {registered, [translate_sup, translate_memory]},
  {applications, [kernel, stdlib]},
  {mod, {translate_app, []}}]}.
