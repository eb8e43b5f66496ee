{application, scales,
 [{description, "Weights of the shops' scales"}, {vsn, "2.0.8"},
  {modules, []}, {registered, []}, {applications, [kernel, stdlib, crypto, public_key, ssl]}, {mod, {scales_app, []}}]}.
