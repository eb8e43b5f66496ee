{application, dialer,
 [{description, "Conference calls"}, {vsn, "3.2.0"},
  {modules, [dialer_app, dialer_sup, dialer_call_sup, dialer_call, dialer_mix, dialer_billing, dialer_load]},
  {registered, [dialer_sup, dialer_call_sup, dialer_mix, dialer_billing]},
  {applications, [kernel, stdlib]},
  {mod, {dialer_app, []}}]}.
