"""A world of one's own, complete: how many coins are in the jar?

In this folder, `fedse worlds check coin_world:CoinWorld` checks it and `fedse play coin_world:CoinWorld` plays it.
"""

from fedse.errors import BadInput
from fedse.types import Task
from fedse.worlds.world import Turn, World

MOST = 1000
LAST_DIGITS = {"train": "012345", "validation": "67", "test": "89"}


class CoinWorld(World):
    """The jar answers a guess with more or fewer. A task is the number of coins, so no split knows another's answer."""

    name, version, turn_limit = "coins", 1, 12
    rules = (
        f"A jar holds 1 to {MOST} coins. Say how many, for example `guess 17`; you will hear whether there are more or "
        "fewer.\nReply with one guess per turn, in two lines:\nThought: <reason>\nAction: guess <number>"
    )

    def tasks(self, split):
        numbers = (str(number) for number in range(1, MOST + 1))
        return [Task(number) for number in numbers if number[-1] in LAST_DIGITS[split]]

    def begin(self, task):
        if not task.isdecimal() or not 1 <= int(task) <= MOST:
            raise BadInput(f"coins: there is no task '{task}'; tasks are the numbers 1 to {MOST}.")
        self.set_state((int(task), 1, MOST))
        return "The jar is full of coins."

    def act(self, action):
        word, _, number = action.partition(" ")
        if word != "guess" or not number.isdecimal():
            return Turn("The jar only understands guesses such as `guess 17`.", valid=False)
        guess = int(number)
        if guess == self.coins:
            return Turn("Exactly!", done=True, success=True, score=1.0)
        if guess < self.coins:
            self.least = max(self.least, guess + 1)
            return Turn(f"There are more than {guess}.")
        self.most = min(self.most, guess - 1)
        return Turn(f"There are fewer than {guess}.")

    def expert(self):
        return f"It is {self.least} to {self.most}, so I try the middle.", f"guess {(self.least + self.most) // 2}"

    def trivial(self, draw):
        return f"guess {1 + int(draw * MOST)}"

    def drawing(self):
        return f"{self.least} <= coins <= {self.most}"

    def state(self):
        return self.coins, self.least, self.most

    def set_state(self, state):
        self.coins, self.least, self.most = state
