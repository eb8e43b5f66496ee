{application, seismics,
 [{description, "Seismic stations of a region"}, {vsn, "3.3.0"},
  {modules, [seismics_app, seismics_sup, seismics_receiver, seismics_station, seismics_stations, seismics_analysis, seismics_api]},
  {registered, [seismics_sup, seismics_receiver, seismics_stations, seismics_analysis, seismics_api]},
  {applications, [kernel, stdlib]},
  {mod, {seismics_app, []}}]}.
