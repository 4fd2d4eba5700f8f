"""PADS' policy: which distances negatives are drawn from, adjusted by how held-out images fare."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.objectives.own_adam import OwnAdam
from obdsd.seeds import seed_of

METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "intra", "inter", "nmi")
"""What the policy is told of held-out images."""
FACTORS = (0.8, 1.0, 1.25)
"""What it may do with the probability of a bin."""
RECENT, WINDOWS = 20, (2, 8, 16, 32)  # measurements that it sees one by one, and over which it sees means
HIDDEN, DISCOUNT, CLIP, REFRESH = 128, 0.99, 0.2, 5  # REFRESH: calls after which the policy that acts is the one that learned

Critic = Literal["return", "metric"]


class Policy(nn.Module):
    """A state → the log probability of every factor for every bin, and the state's value."""

    def __init__(self, size: int, bins: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(size, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
        self.actor, self.critic = nn.Linear(HIDDEN, bins * len(FACTORS)), nn.Linear(HIDDEN, 1)

    def forward(self, state: Float[Tensor, " s"]) -> tuple[Float[Tensor, "k f"], Float[Tensor, ""]]:
        hidden = self.body(state)
        return self.actor(hidden).view(-1, len(FACTORS)).log_softmax(dim=1), self.critic(hidden).squeeze()


class NegativePolicy(nn.Module):
    """Each call learns from what the last factors came to, by one step of PPO, then draws new ones, a factor a bin.

    With s the last state, a its factors, s' the state now, V the critic, r = sign(metric now - metric then), and π_old the policy that
    drew a:

        A = r + 0.99 V(s') - V(s)        ρ = π(a|s) / π_old(a|s), a ratio a bin
        loss = -mean over bins of min(ρA, clip(ρ, 0.8, 1.2)·A) + ½(V(s) - target)²

    The critic's target is the return r + 0.99 V(s'). All it has learned and seen is state.

    Args:
        bins: How many bins there are.
        seed: Seed of its weights and its draws.
        lr: Learning rate of its own Adam.
        critic: Whether the critic learns the return or, as in the published code, the metric.
    """

    history: Tensor
    calls: Tensor
    state: Tensor
    drawn: Tensor
    log_drawn: Tensor
    metric: Tensor

    def __init__(self, bins: int, seed: int, lr: float, critic: Critic) -> None:
        super().__init__()
        self.seed, self.critic = seed, critic
        size = (RECENT + len(WINDOWS)) * len(METRICS) + bins + 1
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.policy = Policy(size, bins)
        self.old = copy.deepcopy(self.policy)
        self.adam = OwnAdam([*self.policy.parameters()], lr)
        self.register_buffer("history", torch.zeros(max(WINDOWS), len(METRICS)))  # the newest last
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("state", torch.zeros(size))
        self.register_buffer("drawn", torch.zeros(bins, dtype=torch.long))
        self.register_buffer("log_drawn", torch.zeros(bins))
        self.register_buffer("metric", torch.tensor(0.0))

    @torch.no_grad()
    def forward(
        self, measured: Float[Tensor, " m"], metric: Float[Tensor, ""], p: Float[Tensor, " k"], progress: float
    ) -> Float[Tensor, " k"]:
        """The factor of every bin, given the newest measurements, the one that is to rise, the bins' probabilities, and t/T."""
        self.history.copy_(torch.cat([self.history[1:], measured[None]]))
        before = int(self.calls)
        state = self.observed(before + 1, p, progress)
        if before:
            self.learn(state, metric)
            if before % REFRESH == 0:
                self.old.load_state_dict(self.policy.state_dict())
        log_probabilities, _ = self.old(state)
        generator = torch.Generator(state.device).manual_seed(seed_of(self.seed, before))
        drawn = torch.multinomial(log_probabilities.exp(), 1, generator=generator)
        self.state.copy_(state)
        self.drawn.copy_(drawn.squeeze(1))
        self.log_drawn.copy_(log_probabilities.gather(1, drawn).squeeze(1))
        self.metric.copy_(metric)
        self.calls += 1
        return state.new_tensor(FACTORS)[self.drawn]

    def observed(self, calls: int, p: Float[Tensor, " k"], progress: float) -> Float[Tensor, " s"]:
        """The last 20 measurements (0 where there was none), their means over windows, p, and t/T."""
        known = self.history[-min(calls, len(self.history)) :]
        means = [known[-window:].mean(dim=0) for window in WINDOWS]
        return torch.cat([self.history[-RECENT:].flatten(), *means, p / p.sum(), p.new_tensor([progress])])

    def learn(self, state: Float[Tensor, " s"], metric: Float[Tensor, ""]) -> None:
        """One step of PPO for the factors that were drawn last; `state` and `metric` are what they came to."""
        parameters = [*self.policy.parameters()]
        returned = torch.sign(metric - self.metric) + DISCOUNT * self.policy(state)[1]
        with torch.enable_grad():
            loss = self.loss(self.state, self.drawn, self.log_drawn, returned, metric)
            gradients = torch.autograd.grad(loss, parameters)
        self.adam.step(parameters, gradients)

    def loss(
        self,
        state: Float[Tensor, " s"],
        drawn: Int[Tensor, " k"],
        log_drawn: Float[Tensor, " k"],
        returned: Float[Tensor, ""],
        metric: Float[Tensor, ""],
    ) -> Float[Tensor, ""]:
        """PPO's loss of the factors `drawn` in a state, which came to `returned`."""
        log_probabilities, value = self.policy(state)
        ratio = (log_probabilities.gather(1, drawn[:, None]).squeeze(1) - log_drawn).exp()
        advantage = (returned - value).detach()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        target = returned if self.critic == "return" else metric
        return (value - target).square() / 2 - gain
