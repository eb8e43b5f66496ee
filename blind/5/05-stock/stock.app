{application, stock, [{description, "stock of the warehouses"}, {vsn, "5.0.2"}, {modules, [stock_app, stock_sup, stock_db, stock_till, stock_till_sup, stock_report]},
 {registered, [stock_sup, stock_till_sup, stock_report]}, {applications, [kernel, stdlib, mnesia]}, {mod, {stock_app, []}}]}.
