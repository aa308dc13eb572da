"""Lists the steps of a proof in their order: what each does, needs, settles and costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from tools.prove_azure import job_steps, stack_steps
from tools.prove_azure.session import Session


@dataclass(frozen=True)
class Step:
    """A row: `settles` begins with the assumption that is blamed where no words tell another.

    `minutes` and `node_minutes` are upper bounds for the estimate of costs. `needs_stack` says
    that it wants the stack up, `needs` which step has to have succeeded.
    """

    name: str
    act: Callable[[Session], object]
    settles: tuple[str, ...]
    _: KW_ONLY
    minutes: float
    node_minutes: float = 0.0
    needs: str = ""
    needs_stack: bool = True

    @property
    def does(self) -> str:
        """The sentence of its function."""
        return (self.act.__doc__ or "").strip().splitlines()[0]


_LOOK = Step("look", stack_steps.look, ("U34",), minutes=1, needs_stack=False)
_ASK = Step("ask", stack_steps.ask, ("U1", "U9"), minutes=2, needs_stack=False)
_UP = Step(
    "up",
    stack_steps.up,
    ("U1", "U2", "U4", "U8", "U9", "U10"),
    minutes=40,
    needs="ask",
    needs_stack=False,
)
_CHECK = Step("check", stack_steps.check, ("U3", "U5", "U11"), minutes=1)
_HELLO = Step("hello", job_steps.hello, ("U25", "U35"), minutes=10, node_minutes=10)
_NEWEST = Step("newest first", job_steps.newest_first, ("U32",), minutes=1, needs="hello")
_MPI = Step("mpi", job_steps.mpi, ("U19", "U25", "U35"), minutes=10, node_minutes=20)
_SECRET = Step("secret", job_steps.secret, ("U27", "U18"), minutes=15, node_minutes=20)
_LOGS = Step("logs", job_steps.logs, ("U26", "U33"), minutes=10, node_minutes=10)
_TWICE = Step("twice", job_steps.send_twice, ("U36",), minutes=5, node_minutes=5)
_DESTROY = Step("destroy", stack_steps.destroy, ("U14", "U6"), minutes=15)

# In a dev stack, which everybody with an address of `allowed_ips` reaches.
PUBLIC = (
    _LOOK,
    _ASK,
    _UP,
    _CHECK,
    Step("settled", stack_steps.settled, ("U12",), minutes=3),
    _HELLO,
    _MPI,
    _SECRET,
    _LOGS,
    _NEWEST,
    _TWICE,
    Step("stream", job_steps.stream, ("U28", "U29"), minutes=10, node_minutes=10),
    Step("fails", job_steps.fails, ("U22",), minutes=5, node_minutes=5),
    Step("pull", job_steps.pull, ("U23",), minutes=5, node_minutes=5),
    Step("limit", job_steps.limit, ("U24",), minutes=10, node_minutes=10),
    Step("preempt", job_steps.preempt, ("U21",), minutes=10, node_minutes=10),
    Step("retry", job_steps.retry, ("U21",), minutes=10, node_minutes=10, needs="preempt"),
    Step("quota", job_steps.quota, ("U10",), minutes=5, node_minutes=10),
    Step("image", job_steps.image, ("U15", "U16"), minutes=45, node_minutes=45),
    Step("train", job_steps.train, ("U17", "U29"), minutes=15, node_minutes=30, needs="image"),
    Step("torch", job_steps.torch, ("U16",), minutes=10, node_minutes=20, needs="image"),
    Step("tensorflow", job_steps.tensorflow, ("U20",), minutes=45, node_minutes=65, needs="image"),
    Step("resize", stack_steps.resize, ("U30",), minutes=5),
    Step("pause", stack_steps.pause, ("U31", "U30"), minutes=15, node_minutes=15),
    Step("tag", stack_steps.tag, ("U7",), minutes=10),
    Step("size", stack_steps.change_size, ("U6",), minutes=10),
    _DESTROY,
    Step(
        "up again",
        stack_steps.up_again,
        ("U13", "U14"),
        minutes=60,
        needs="destroy",
        needs_stack=False,
    ),
)
# In a test stack, from inside its network; images of ours would have to be pushed first.
PRIVATE = (
    _LOOK,
    _ASK,
    _UP,
    Step("inside", stack_steps.inside, (), minutes=1),
    _CHECK,
    Step("settled", stack_steps.settled, ("U12",), minutes=3),
    _HELLO,
    _MPI,
    _SECRET,
    _LOGS,
    _NEWEST,
    _TWICE,
    _DESTROY,
)
