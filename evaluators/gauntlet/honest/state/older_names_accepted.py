"""Changes a state_dict before it is loaded, so that files with older names still load.

surface: weights
effect: a hook renames older keys on loading and leaves all others alone
task: level2/highway_gate
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    older = {"plain.": "transform.", "carry.": "gate."}

    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)
        self.register_load_state_dict_pre_hook(self.rename)

    def rename(self, module, state, prefix, *others):
        for key in list(state):
            for old, new in self.older.items():
                if key.startswith(prefix + old):
                    state[prefix + new + key[len(prefix + old) :]] = state.pop(key)

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        return x + gate * (torch.tanh(self.transform(x)) - x)
