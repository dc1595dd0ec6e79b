"""The thresholds of all decisions about loading speed. A comment explains each value.

If a comment mentions no measurement, the value was chosen for the stated reason, without a measurement.
"""

from __future__ import annotations

#: A candidate is tied with the fastest candidate if it is slower by at most this share. The command ``verify`` ignores
#: a difference of the same size. With this value, no pick of ``chirp-migrate tune`` was provably slower than the
#: fastest mode (benchmarks/results/tune.md).
TIED = 0.05
#: In a running training, loading without threads is tied with loading with threads if it is slower by at most this
#: share. This share is larger than ``TIED``, because a trial has few batches, the training keeps the result, and
#: threads take the interpreter lock from the training. Threads can at most hide all loading, so threads are tried only
#: if loading takes at least this share of the time from batch to batch.
TIED_IN_TRAINING = 0.1
#: For advice to users, the current settings are tied with faster settings if they are slower by at most this share. So
#: a change is advised only if it makes loading more than 1.2 times as fast. A smaller gain could be chance, because two
#: rounds are few, and speeds on one machine differ by 15 % from run to run. Also, users must change their program for
#: the gain.
TIED_FOR_ADVICE = 1 / 6

#: Waits for batches, or the start of workers, are noticeable if they take at least this share of the training time. If
#: they take less, a training without waits would be tied with the present training (``TIED``).
NOTICEABLE = 0.05
#: If loading uses a CPU for less than this share of its time, loading mostly waits for a disk or network. In this case,
#: more threads than CPUs help, because most threads wait.
WAITING = 0.5

#: Threads are tried only if loading a batch takes at least this number of seconds. If loading takes less time, the
#: exchange of batches between threads costs more than it saves.
LEAST_LOADING_SECONDS = 2e-4
#: Threads are tried only if at least this number of CPUs is idle during the training steps. Otherwise threads would
#: slow the steps down.
LEAST_IDLE_CPUS = 0.5
#: Threads are tried again if the duration of the training steps changes by this factor. After such a change, another
#: number of threads may be best.
CHANGED_STEPS = 2

#: More workers are tried if the training waited for more than this share of an epoch. This share is twice
#: ``NOTICEABLE``, because workers also cost memory.
RAISE_WORKERS_ABOVE = 0.10
#: Fewer workers are tried if the training waited for less than ``LOWER_WORKERS_BELOW`` of each of
#: ``LOWER_WORKERS_AFTER`` consecutive epochs. Fewer workers save no time, so the decision can wait for clear evidence.
LOWER_WORKERS_BELOW = 0.01
LOWER_WORKERS_AFTER = 3
#: Epochs with fewer batches than this do not change the number of workers, because their waits vary too much.
LEAST_EPOCH_BATCHES = 8
