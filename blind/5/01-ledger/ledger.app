{application, ledger, [{description, "account ledger"}, {vsn, "3.2.0"}, {modules, [ledger_app, ledger_sup, ledger_book, ledger_posting, ledger_export, ledger_api, ledger_rates]},
 {registered, [ledger_sup, ledger_book, ledger_export, ledger_api, ledger_rates]}, {applications, [kernel, stdlib]}, {mod, {ledger_app, []}}]}.
