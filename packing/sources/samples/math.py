"""*math-grpo*: word problems with eight sampled solutions each, as a GRPO run would log them."""

from __future__ import annotations

from typing import Any

from packing.sources.samples.dice import Dice, Habit
from packing.sources.samples.problems import make_problem
from packing.sources.samples.solutions import write_solution

N_PROBLEMS = 64
N_SAMPLES = 8
PROMPT = (
    "Solve the following problem. Explain your steps and finish with one line that says "
    '"Answer:" and the number.\n\nProblem: {0}\n\nSolution:\n'
)


def math_records(seed: int) -> list[dict[str, Any]]:
    """One record per problem: ``problem_id, prompt, completions, rewards, answer``."""
    records = []
    for number in range(N_PROBLEMS):
        dice = Dice(seed + number)
        problem = make_problem(dice, number)
        habit = Habit(dice, loyalty=0.8)
        skill = dice.pick((0.0, 0.25, 0.5, 0.5, 0.75, 0.75, 0.9, 1.0))
        tries = [write_solution(problem, habit, dice, skill) for _ in range(N_SAMPLES)]
        records.append(
            {
                "problem_id": f"problem-{number:03d}",
                "prompt": PROMPT.format(problem.text),
                "completions": [text for text, _ in tries],
                "rewards": [reward for _, reward in tries],
                "answer": str(problem.answer),
            }
        )
    return records
