{application, tollgates,
 [{description, "Takes in the passages of the toll gates"}, {vsn, "1.1.0"}, {modules, []},
  {registered, [tollgates_sup, tollgates_bookings, tollgates_tariff, tollgates_acceptor]},
  {applications, [kernel, stdlib]}, {mod, {tollgates_sup, []}}]}.
