{application, phonebills,
 [{description, "Takes in the call records of the switches"}, {vsn, "11.2.0"},
  {modules, []}, {registered, []}, {applications, [kernel, stdlib]}, {mod, {phonebills_app, []}}]}.
