{application, tours, [{description, "bookings of guided tours"}, {vsn, "6.3.0"}, {modules, [tours_app, tours_sup, tours_booking_sup, tours_booking, tours_places, tours_payment, tours_web, tours_mail]},
 {registered, [tours_sup, tours_booking_sup, tours_places, tours_payment, tours_web, tours_mail]}, {applications, [kernel, stdlib]}, {mod, {tours_app, []}}]}.
