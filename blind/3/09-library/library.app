{application, library,
 [{description, "Catalogue and readers of a library"}, {vsn, "8.0.3"},
  {modules, [library_app, library_sup, library_catalogue, library_readers, library_reader, library_desk]},
  {registered, [library_sup, library_catalogue, library_readers]},
  {applications, [kernel, stdlib]},
  {mod, {library_app, []}}]}.
