"""Optuna's TPE sampler as a filter: prints the next candidate, then reads its measured values, one line each."""

import json
import sys
import warnings

import optuna

warnings.simplefilter("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)
about = json.loads(sys.stdin.readline())
limits = about["limits"]


def constraints(trial):
    return trial.user_attrs.get("over", [0.0] * len(limits))


sampler = optuna.samplers.TPESampler(seed=about["seed"] % 2**32, multivariate=True, constraints_func=constraints)
study = optuna.create_study(sampler=sampler)
names = [f"p{number}" for number in range(len(about["parameters"]))]
for point in about["first"]:
    study.enqueue_trial(dict(zip(names, point)))
while True:
    trial = study.ask()
    point = []
    for name, (levels, ordered) in zip(names, about["parameters"]):
        if ordered:
            point.append(trial.suggest_int(name, 0, levels - 1))
        else:
            point.append(trial.suggest_categorical(name, list(range(levels))))
    print(json.dumps(point), flush=True)
    line = sys.stdin.readline()
    if not line:
        break
    values = json.loads(line)
    trial.set_user_attr("over", [value - limit for value, limit in zip(values[1:], limits)])
    study.tell(trial, values[0])
