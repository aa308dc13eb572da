"""Horovod's optimizer, `load_model` and the checks of `compile` for Keras 3."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import horovod._keras as impl
import horovod.tensorflow as hvd
import keras
from horovod.mended.variables import plain

OTHER_IMAGE = (
    "`compile(experimental_run_tf_function=...)` is Keras 2's, and this is Keras {version}"
    "\nhint: set `image: tensorflow-keras2` in the job file, or remove the argument"
)


def mend() -> None:
    """Replace Horovod's two functions, and let every model's `compile` know of them."""
    impl.create_distributed_optimizer = create_distributed_optimizer
    impl.load_model = load_model
    # In the class that defines it: Keras rebuilds no compiled model whose own class overrides it.
    trainer = next(each for each in keras.Model.__mro__ if "compile" in vars(each))
    trainer.compile = compiling(trainer.compile)


class Reducer:
    """Sums or averages gradients over the ranks, less those of variables that stay local."""

    def __init__(self, allreduce: Callable[..., list[Any]], passes: float, share: float) -> None:
        self._allreduce, self._passes, self._share = allreduce, passes, share
        self.local: set[Any] = set()

    def __call__(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        grads = list(grads)
        refs = [variable.ref() for variable in variables]
        shared = [place for place, ref in enumerate(refs) if ref not in self.local]
        reduced = self._allreduce(
            [grads[place] for place in shared], [plain(variables[place]) for place in shared]
        )
        for place, ref in enumerate(refs):
            if ref in self.local and grads[place] is not None:
                grads[place] = grads[place] * self._share
        for place, grad in zip(shared, reduced, strict=True):
            grads[place] = grad
        if self._passes == 1:
            return grads
        return [grad if grad is None else grad * self._passes for grad in grads]

    def __deepcopy__(self, memo: dict[int, Any]) -> Reducer:
        return self


def create_distributed_optimizer(
    keras: Any,
    optimizer: Any,
    name: str | None,
    device_dense: str,
    device_sparse: str,
    compression: Any,
    sparse_as_dense: bool,
    gradient_predivide_factor: float,
    op: Any,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: Any = hvd.global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Make an optimizer like the one that is given, which reduces gradients before it applies them.

    Several backward passes a step are Keras 3's own accumulation, which averages over them.
    """
    config = optimizer.get_config()
    if backward_passes_per_step > 1:
        config["gradient_accumulation_steps"] = backward_passes_per_step
    made = type(optimizer).from_config(config)
    allreduce = hvd._make_allreduce_grads_fn(
        name or f"Distributed{type(optimizer).__name__}",
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups,
        process_set,
    )
    passes = 1 if average_aggregated_gradients else max(backward_passes_per_step, 1)
    share = 1 / process_set.size() if scale_local_gradients else 1
    distribute(made, Reducer(allreduce, passes, share))
    return made


def distribute(optimizer: Any, reducer: Reducer) -> None:
    """Have this optimizer reduce its gradients from now on."""
    kind = type(optimizer)

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        variables = trainable_variables or self._trainable_variables
        return kind.apply(self, self._horovod_reducer(grads, variables), trainable_variables)

    def register_local_var(self: Any, variable: Any) -> None:
        self._horovod_reducer.local.add(variable.ref())

    # Of its class's own name, so that a saved model is one that Keras loads without Horovod.
    module = "keras.optimizers" if kind.__module__.startswith("keras.") else kind.__module__
    members = {"apply": apply, "register_local_var": register_local_var, "__module__": module}
    optimizer.__class__ = type(kind.__name__, (kind,), members)
    optimizer._horovod_reducer = reducer


def reducer_of(optimizer: Any) -> Reducer | None:
    return getattr(optimizer, "_horovod_reducer", None)


def load_model(
    keras: Any,
    wrap_optimizer: Callable[[Any], Callable[..., Any]],
    filepath: Any,
    custom_optimizers: Sequence[Any] | None,
    custom_objects: dict[str, Any] | None,
    legacy_opts: bool = False,
) -> Any:
    """Load a model and have its optimizer, with all its state, reduce gradients from now on."""
    own = {each.__name__: each for each in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**own, **(custom_objects or {})})
    if model.compiled and reducer_of(model.optimizer) is None:
        if str(filepath).endswith((".h5", ".hdf5")):
            restore_from_hdf5(model, filepath)
        like = wrap_optimizer(keras.optimizers.SGD)()
        distribute(model.optimizer, like._horovod_reducer)
        model.jit_compile = False
    return model


def restore_from_hdf5(model: Any, filepath: Any) -> None:
    """Build the optimizer for the model's variables: Keras 3 builds it for none, and cannot train."""
    import h5py
    from keras.src.legacy.saving import legacy_h5_format

    optimizer = model.optimizer
    if optimizer._trainable_variables or not model.trainable_variables:
        return
    optimizer.built = False
    optimizer.build(model.trainable_variables)
    with h5py.File(filepath, "r") as file:
        if "optimizer_weights" in file:
            values = legacy_h5_format.load_optimizer_weights_from_hdf5_group(file)
            optimizer.set_weights(values)


def compiling(stock: Callable[..., None]) -> Callable[..., None]:
    """Wrap `Model.compile`: names the image that a script of Keras 2 needs, keeps XLA off allreduces."""

    @wraps(stock)
    def compile_model(self: Any, *args: Any, **kwargs: Any) -> None:
        if "experimental_run_tf_function" in kwargs:
            raise TypeError(OTHER_IMAGE.format(version=keras.__version__))
        stock(self, *args, **kwargs)
        optimizer = getattr(self, "optimizer", None)
        inner = getattr(optimizer, "inner_optimizer", None)
        reducer = reducer_of(inner)
        if reducer is not None:
            # A loss scale that Keras put around it skips steps by rank: all ranks or none have to.
            inner.__class__ = type(inner).__bases__[0]
            del inner._horovod_reducer
            distribute(optimizer, reducer)
        if reducer_of(optimizer) is not None:
            self.jit_compile = False

    return compile_model
