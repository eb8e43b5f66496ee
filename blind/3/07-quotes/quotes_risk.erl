-module(quotes_risk).
-export([weigh/1, age/1, region/1, history/1]).
weigh(P) -> age(P) * region(P) * history(P).
age(#{age := A}) -> quotes_rules:factor(A).
region(#{region := R}) -> quotes_rules:factor(R).
history(#{claims := Cs}) -> lists:foldl(fun(C, F) -> F * claim(C) end, 1.0, Cs).
claim({Year, Sum}) -> 1 + Sum / 100000 / (2027 - Year).
