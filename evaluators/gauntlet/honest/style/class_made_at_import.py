"""Makes its model class by a call of type() from functions and a decorator.

surface: compiler
effect: the class is put together by type(), of plain functions
task: level1/pairwise_squared_distance
arch: cpu cuda
"""

import functools

import torch
from torch import nn


def named(function):
    @functools.wraps(function)
    def inner(*arguments, **options):
        return function(*arguments, **options)

    return inner


def initialise(self):
    nn.Module.__init__(self)


@named
def forward(self, x, y):
    augmented_x = torch.cat([-2 * x, x.square().sum(1, keepdim=True), torch.ones_like(x[:, :1])], 1)
    augmented_y = torch.cat([y, torch.ones_like(y[:, :1]), y.square().sum(1, keepdim=True)], 1)
    return torch.mm(augmented_x, augmented_y.t())


members = {"__init__": initialise, "forward": forward, "__module__": __name__}
globals()["Model" + "New"] = type("ModelNew", (nn.Module,), members)
