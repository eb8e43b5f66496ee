{application, photos,
 [{description, "Store of the thumbnails"}, {vsn, "3.2.0"}, {modules, []},
  {registered, [photos_sup, photos_ring, photos_exchange, photos_listener, photos_stats]},
  {applications, [kernel, stdlib, crypto]}, {mod, {photos_sup, []}}]}.
