{application, parcel, [{description, "parcel"}, {vsn, "6.2.0"}, {modules, []}, {registered, []},
 {applications, [kernel, stdlib]}, {mod, {parcel_app, []}}]}.
