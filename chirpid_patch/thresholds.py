"""The thresholds of all decisions about loading speed, with the reason for each value.

Where a comment names no measurement, the value comes from the reason alone.
"""

from __future__ import annotations

#: A candidate is tied with the fastest candidate if it is slower by at most this share. The command ``verify`` ignores
#: the same difference. With this value, no pick of ``chirp-migrate tune`` was provably slower than the fastest mode
#: (benchmarks/results/tune.md).
TIED = 0.05
#: The same share for threads in a running training. A trial has few batches, and the training keeps the result. Threads
#: also take the interpreter lock from the training. So the gain must be clear. Threads can at most hide all loading, so
#: they are tried only if loading takes at least this share of the time from batch to batch.
TIED_IN_TRAINING = 0.1
#: The same share for advice, which must make loading 1.2 times as fast. Two rounds are few: speeds on one machine
#: differ by 15 % from run to run. Also, people must change their program.
TIED_FOR_ADVICE = 1 / 6

#: A part of the training time is noticeable from this share: waits for batches, or starting workers. Without a smaller
#: part, the training would be tied with the present training (``TIED``).
NOTICEABLE = 0.05
#: If loading uses a CPU for less than this share of its time, it counts as waiting for a disk or network. More threads
#: than CPUs then help, because most threads wait.
WAITING = 0.5

#: Threads are tried only if loading a batch takes at least this number of seconds. Less loading cannot pay for the
#: exchange of batches between threads.
LEAST_LOADING_SECONDS = 2e-4
#: Threads are tried only if at least this number of CPUs is idle during the training steps. Otherwise threads would
#: slow the steps down.
LEAST_IDLE_CPUS = 0.5
#: Threads are tried again if the duration of the steps changes by this factor. The ratio of loading and computing is
#: then so different that another number of threads may be best.
CHANGED_STEPS = 2

#: More workers are tried if the training waited for more than this share of an epoch. Workers also cost memory, so this
#: share is twice ``NOTICEABLE``.
RAISE_WORKERS_ABOVE = 0.10
#: Fewer workers are tried if the training waited for less than this share of this number of consecutive epochs. Fewer
#: workers save no time, so a decision can wait for clear evidence.
LOWER_WORKERS_BELOW = 0.01
LOWER_WORKERS_AFTER = 3
#: Epochs with fewer batches do not change the number of workers, because their waits vary too much.
LEAST_EPOCH_BATCHES = 8
