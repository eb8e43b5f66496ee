{application, addresses,
 [{description, "Checks postal addresses"}, {vsn, "1.14.0"},
  {modules, [addresses_app, addresses_sup, addresses_listener, addresses_conn, addresses_partner, addresses_countries, addresses_usage]},
  {registered, [addresses_sup, addresses_listener, addresses_countries, addresses_usage]},
  {applications, [kernel, stdlib, crypto, public_key, ssl]},
  {mod, {addresses_app, []}}]}.
