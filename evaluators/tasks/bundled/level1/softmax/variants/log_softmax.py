# expect: faster
# analysis: The reference computes the exponential twice and makes many passes over memory.
# design: Use the fused log softmax and take one exponential.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.log_softmax(x, dim=1).exp_()
