{application, archive,
 [{description, "Index of the scanned letters"}, {vsn, "5.1.0"},
  {modules, [archive_app, archive_sup, archive_index, archive_import, archive_search]},
  {registered, [archive_sup, archive_index, archive_import, archive_search]},
  {applications, [kernel, stdlib]},
  {mod, {archive_app, []}}]}.
