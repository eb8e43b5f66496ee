{application, harbour,
 [{description, "Berths of the harbour"}, {vsn, "6.1.1"},
  {modules, []}, {registered, []}, {applications, [kernel, stdlib]}, {mod, {harbour_app, []}}]}.
