-module(quotes_tariff).
-export([price/2]).
price(Product, P) -> round(base(Product) * quotes_risk:weigh(P) * 100) / 100.
base(household) -> 91.0;
base(car) -> 412.0;
base(life) -> 230.0.
