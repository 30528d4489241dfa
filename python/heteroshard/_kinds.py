# SPDX-License-Identifier: Apache-2.0
"""Blocks and optimizers that are Python functions of NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from ._library import check as _check, ffi as _ffi, lib as _lib

_registered: list[Any] = []  # callbacks of kinds live as long as the process


@dataclass(frozen=True)
class Pass:
    """What a block of one's own computes with: arrays of the engine, valid during the call.
    forward writes y; backward writes dx, unless it is None, and adds to those of dparams that are
    not None."""

    settings: tuple[float, ...]
    x: np.ndarray  # (rows, in)
    y: Any  # an array (rows, out) in forward, else None
    params: list[np.ndarray]
    dy: Any  # an array (rows, out) in backward, else None
    dx: np.ndarray | None
    dparams: list[np.ndarray | None]


@dataclass(frozen=True)
class Update:
    """What an optimizer of one's own changes: value and states, in place. The gradient is grad *
    scale."""

    name: str
    value: np.ndarray
    grad: np.ndarray
    state: list[np.ndarray]
    step: int
    learning_rate: float
    scale: float
    weight_decay: float


def _view(p: Any, *shape: int) -> Any:
    """An array of the engine's numbers, without a copy."""
    if not p:
        return None
    return np.frombuffer(_ffi.buffer(p, 4 * int(np.prod(shape))), np.float32).reshape(shape)


raised: list[BaseException] = []  # in functions of blocks and optimizers; train() raises the first


def _caught(call: Callable[..., Any], *args: Any) -> int:
    try:
        call(*args)
        return 0
    except BaseException as e:  # goes on in the caller's frame
        raised.append(e)
        return -1


class _Kind:
    """The functions of a kind of block, as C calls them."""

    FIRST = ("zeros", "ones", "uniform", "normal")

    def __init__(self, shape: Any, params: Any, forward: Any, backward: Any, settings: int):
        self.shape, self.params, self.settings = shape, params, settings
        self.keep: list[Any] = []
        self.known: dict[tuple[int, ...], list[tuple[Any, tuple[int, ...], int]]] = {}
        sizes = "int(double const *, int, int64_t const *, "
        self.c_shape = _ffi.callback(sizes + "int *, int64_t *)", self.fit)
        self.c_params = _ffi.callback(sizes + "hs_kind_param *)", self.fill)
        self.c_pass = [
            _ffi.callback("int(hs_pass const *)", lambda p, f=f: _caught(self.run, f, p))
            for f in (forward, backward)
            if f
        ]

    def fit(self, _: Any, ndim: int, x: Any, ndim_p: Any, out: Any) -> int:
        def call() -> None:
            dims = tuple(x[i] for i in range(ndim))
            y = tuple(self.shape(dims)) if self.shape else dims
            ndim_p[0] = len(y)
            for i, v in enumerate(y):
                out[i] = v

        return _caught(call)

    def of(self, dims: tuple[int, ...]) -> list[tuple[Any, tuple[int, ...], int]]:
        if dims not in self.known:
            rows = self.params(dims).items() if self.params else ()
            self.known[dims] = [
                (_ffi.new("char[]", n.encode()), tuple(s), self.FIRST.index(f))
                for n, (s, f) in rows
            ]
        return self.known[dims]

    def fill(self, _: Any, ndim: int, x: Any, p: Any) -> int:
        dims = tuple(x[i] for i in range(ndim))
        if _caught(self.of, dims):
            return -1
        for i, (name, size, first) in enumerate(self.known[dims]):
            p[i].name, p[i].rows, p[i].first = name, size[0], first
            p[i].columns = size[1] if len(size) > 1 else 0
        return len(self.known[dims])

    def run(self, function: Callable[[Pass], None], p: Any) -> None:
        width = getattr(p, "in")
        sizes = [s for _, s, _ in self.of(tuple(p.dim[i] for i in range(p.ndim)))]
        function(
            Pass(
                tuple(p.set[i] for i in range(self.settings)),
                _view(p.x, p.rows, width),
                _view(p.y, p.rows, p.out),
                [_view(p.param[i], *s) for i, s in enumerate(sizes)],
                _view(p.dy, p.rows, p.out),
                _view(p.dx, p.rows, width),
                [_view(p.dparam[i], *s) for i, s in enumerate(sizes)] if p.dy else [],
            )
        )


def register_block(
    name: str,
    *,
    version: str,
    forward: Callable[[Pass], None] | None = None,
    backward: Callable[[Pass], None] | None = None,
    text: str | None = None,
    by_rows: bool = False,
    shape: Callable[[tuple[int, ...]], Sequence[int]] | None = None,
    params: Callable[[tuple[int, ...]], Mapping[str, tuple[Sequence[int], str]]] | None = None,
    settings: Mapping[str, tuple[float, float, float]] | None = None,
    help: str = "",
) -> None:
    """Adds a kind of block: two functions of NumPy arrays, for processors; a text in the kernel
    dialect (docs/kernels.md), for every device; or both. `shape`: of a row of y by that of x (as it
    is). `params`: by name the shape (one number or two) and the first values ("zeros", "ones",
    "uniform", "normal"). `settings`: by name least, most, and the value where none is given.
    `by_rows`: the text has a work-group for each row. Every worker of a job must have the same
    kind, as those in this process do. What a function raises is raised by train()."""
    k, e = _ffi.new("hs_kind *"), _ffi.new("hs_error *")
    kind = _Kind(shape, params, forward, backward, len(settings or {}))
    words = {"name": name, "version": version, "text": text, "help": help}
    k.size = _ffi.sizeof("hs_kind")
    for key, value in words.items():
        if value is not None:
            kind.keep.append(_ffi.new("char[]", value.encode()))
            setattr(k, key, kind.keep[-1])
    for i, (key, (least, most, value)) in enumerate((settings or {}).items()):
        kind.keep.append(_ffi.new("char[]", key.encode()))
        k.setting[i] = (kind.keep[-1], least, most, value)
    k.shape, k.lanes = kind.c_shape, int(by_rows)
    if params:
        k.params = kind.c_params
    if forward and backward:
        k.forward, k.backward = kind.c_pass
    _check(_lib.hs_block_register(k, e), e)
    _registered.append(kind)


def register_optimizer(
    name: str,
    update: Callable[[Update], None],
    *,
    version: str,
    states: Sequence[str] = (),
    cut: str = "block",
    help: str = "",
) -> None:
    """Adds an optimizer: `update` changes value and states in place, of the elements that a worker
    owns. `cut`: where they may be divided among workers: "block" (an element reads no other one),
    "matrix" (a whole parameter), "none"."""
    o, e = _ffi.new("hs_optimizer *"), _ffi.new("hs_error *")

    def run(u: Any) -> None:
        n = u.count
        update(
            Update(
                _ffi.string(u.name).decode(),
                _view(u.value, n),
                _view(u.grad, n),
                [_view(u.state[i], n) for i in range(len(states))],
                u.step,
                u.learning_rate,
                u.scale,
                u.weight_decay,
            )
        )

    function = _ffi.callback("int(hs_update const *)", lambda u: _caught(run, u))
    texts = [_ffi.new("char[]", t.encode()) for t in (name, version, help, *states)]
    o.size = _ffi.sizeof("hs_optimizer")
    o.name, o.version, o.help = texts[:3]
    o.cut, o.states, o.update = ("block", "matrix", "none").index(cut), len(states), function
    for i, t in enumerate(texts[3:7]):  # more are refused
        o.state[i] = t
    _check(_lib.hs_optimizer_register(o, e), e)
    _registered.append((function, texts))
