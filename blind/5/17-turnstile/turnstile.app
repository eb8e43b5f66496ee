{application, turnstile, [{description, "turnstiles of a stadium"}, {vsn, "1.14.0"}, {modules, [turnstile_app, turnstile_sup, turnstile_gate, turnstile_gate_sup, turnstile_tickets, turnstile_counter]},
 {registered, [turnstile_sup, turnstile_gate_sup, turnstile_tickets, turnstile_counter]}, {applications, [kernel, stdlib]}, {mod, {turnstile_app, []}}]}.
