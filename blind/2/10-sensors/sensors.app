{application, sensors,
 [{description, "Gateway of the measuring stations"}, {vsn, "2.0.7"},
  {modules, [sensors_app, sensors_sup, sensors_unit, sensors_unit_sup, sensors_values, sensors_export, sensors_upload, sensors_config]},
  {registered, [sensors_sup, sensors_unit_sup, sensors_values, sensors_export, sensors_config]},
  {applications, [kernel, stdlib, sasl, runtime_tools]},
  {mod, {sensors_app, []}}]}.
