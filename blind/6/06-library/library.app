{application, library,
 [{description, "Loans of the city library"}, {vsn, "5.0.3"},
  {modules, []}, {registered, []}, {applications, [kernel, stdlib, mnesia]}, {mod, {library_app, []}}]}.
