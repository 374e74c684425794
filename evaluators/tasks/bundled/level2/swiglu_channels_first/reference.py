import torch
import torch.nn as nn


class Model(nn.Module):
    """SwiGLU gating whose branches pass through a channels-first layout."""

    def __init__(self, features, hidden):
        super().__init__()
        self.gate = nn.Linear(features, hidden)
        self.value = nn.Linear(features, hidden)

    def forward(self, x):
        gate = self.gate(x).transpose(1, 2).contiguous()
        value = self.value(x).transpose(1, 2).contiguous()
        swish = gate * torch.sigmoid(gate)
        y = swish.clone() * value
        return y.transpose(1, 2).contiguous()


batch_size = 32
tokens = 1024
features = 512
hidden = 2048


def get_inputs():
    return [torch.randn(batch_size, tokens, features)]


def get_init_inputs():
    return [features, hidden]
