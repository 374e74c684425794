"""Supervised fine-tuning on programs that teachers proposed and the evaluator verified (CUDA-L1 section 2.2).

Step 0 gathers the lessons; every further step is one epoch over them.
"""

from __future__ import annotations

from collections.abc import Sequence

from evaluators.records import Candidate, Verdict
from learners.records import Rollout, Sample
from orchestration.phases.base import Phase, train_in_batches
from orchestration.pipeline import StepResult
from orchestration.teachers import Lesson, Proposal, make_teachers


class Sft(Phase):
    """Cross-entropy on the responses alone. What was verified also enters the buffer."""

    name = "sft"

    @property
    def steps(self) -> int:
        return 1 + self.session.config.sft.epochs

    def gather(self, step: int) -> StepResult:
        """In step 0, asks the teachers and verifies what they propose; later steps use what was committed."""
        if step > 0:
            return StepResult()
        session, config = self.session, self.session.config
        lesson = Lesson(
            session.tasks,
            make_teachers(config.sft, config.seed),
            config.sft,
            lambda task: session.one_shot(task.id).text,
        )
        result = StepResult()
        lessons: list[dict[str, str]] = []
        proposed = 0
        while asked := lesson.next_round():
            proposed += len(asked)
            candidates = [Candidate.propose(item.task_id, item.source, item.author) for _, item in asked]
            verdicts = session.pipeline.evaluate(candidates, config.evaluator.preset)
            for (key, proposal), candidate in zip(asked, candidates, strict=True):
                verdict = verdicts[candidate.digest]
                result.candidates.setdefault(candidate.digest, candidate)
                result.verdicts[candidate.digest] = verdict
                if verdict.succeeded:
                    lesson.succeeded(key)
                    lessons.append(_lesson(proposal))
        self.memory["lessons"] = lessons
        result.metrics = _figures(proposed, result.verdicts)
        return result

    def learn(self, step: int, rollouts: Sequence[Rollout]) -> dict[str, float]:
        if step == 0:
            return {}
        config = self.session.config.sft
        rng = self.rng(step)
        samples: list[Sample] = []
        for lesson in self.memory["lessons"]:  # type: ignore[attr-defined]
            contrastive = rng.random() < config.contrastive_share
            task_id = lesson["task_id"]
            prompt = self.session.contrastive(task_id) if contrastive else self.session.one_shot(task_id)
            response = self.session.renderer.response(lesson["source"], lesson["analysis"], lesson["design"])
            samples.append(Sample(prompt.ids, tuple(self.session.encode_response(response))))
        done = (step - 1) * -(-len(samples) // config.batch_size)
        rates = [
            config.learning_rate * min(1.0, (done + index + 1) / max(config.warmup_steps, 1))
            for index in range(-(-len(samples) // config.batch_size))
        ]
        return train_in_batches(self.session, samples, epochs=1, batch_size=config.batch_size, rates=rates, rng=rng)


def _lesson(proposal: Proposal) -> dict[str, str]:
    return {
        "task_id": proposal.task_id,
        "source": proposal.source,
        "analysis": proposal.analysis,
        "design": proposal.design,
    }


def _figures(proposed: int, verdicts: dict[str, Verdict]) -> dict[str, float]:
    speedups = [verdict.speedup for verdict in verdicts.values() if verdict.speedup is not None]
    return {
        "proposals": float(proposed),
        "verified": float(len(speedups)),
        **({"mean_speedup": sum(speedups) / len(speedups)} if speedups else {}),
    }
