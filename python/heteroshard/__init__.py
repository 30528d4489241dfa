# SPDX-License-Identifier: Apache-2.0
"""HeteroShard from Python: models of blocks, trained over unlike devices.

    import heteroshard as hs

    with hs.Model("input 64; linear 128; relu; linear 10; cross_entropy") as model:
        result = hs.train(model, (x, y), num_epochs=5, learning_rate=0.003)
        print(result.loss[-1], model.evaluate(x, y).accuracy)

It is the C interface of heteroshard.h, through cffi; arrays are NumPy's and are not copied. A model
is a list of blocks: arbitrary Python code in a forward pass is not taken.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import threading
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

try:
    import cffi  # noqa: F401
    import numpy as np
except ModuleNotFoundError as e:
    message = f"import heteroshard needs {e.name}: pip install cffi numpy"
    raise ModuleNotFoundError(message, name=e.name) from None

from ._kinds import Pass, Update, raised as _raised, register_block, register_optimizer
from ._library import Error, check as _check, ffi as _ffi, lib as _lib

__all__ = [
    "Change",
    "Error",
    "Evaluation",
    "Files",
    "Job",
    "Model",
    "Pass",
    "Result",
    "Step",
    "Update",
    "blocks",
    "command",
    "generate",
    "plan",
    "profile",
    "register_block",
    "register_optimizer",
    "train",
    "version",
]

NOT_TAKEN = "arbitrary Python code in a forward pass is not taken: a model is its blocks, as text"


def version() -> str:
    """The version of the library."""
    return _ffi.string(_lib.hs_version()).decode()


def blocks() -> dict[str, str]:
    """The kinds of blocks, with what each is."""
    out, i = {}, 0
    name, text = _ffi.new("char const **"), _ffi.new("char const **")
    while _lib.hs_block_at(i, name, text) == 0:
        out[_ffi.string(name[0]).decode()] = _ffi.string(text[0]).decode()
        i += 1
    return out


@dataclass(frozen=True)
class Step:
    """A step of training; `rows` have a target."""

    step: int
    total: int
    epoch: float
    loss: float
    accuracy: float
    learning_rate: float
    grad_norm: float
    seconds: float
    rows: int
    skipped: bool


@dataclass(frozen=True)
class Evaluation:
    """Mean loss over `rows` rows, and the share of right classes."""

    loss: float
    accuracy: float
    rows: int
    step: int = 0  # of training, after which


@dataclass(frozen=True)
class Change:
    """Members or plan of a running job have changed: "lost", "joined", "left" or "moved"."""

    event: str
    text: str
    step: int


@dataclass(frozen=True)
class Files:
    """Data in files, as hs_files of heteroshard.h: .npy, .npz, IDX, columns of .csv, .tsv and
    .jsonl, or a folder of images. In the place of data for train() and evaluate()."""

    x: str
    y: str | None = None
    x_columns: str | None = None
    y_columns: str | None = None
    length: int = 0
    held: int = 0
    scale: float = 0.0
    shift: float = 0.0
    block: int = 0
    mixed: int = 0


@dataclass(frozen=True)
class Result:
    """A run: the history as arrays (step first_step + k), and how it ended."""

    step: int
    total: int
    stopped: bool
    held_before: float
    held_after: float
    seconds: float
    first_step: int
    loss: np.ndarray
    learning_rate: np.ndarray
    grad_norm: np.ndarray


class Model:
    """A model from the text of its blocks, or from a list of such texts."""

    def __init__(self, text: str | Iterable[str], seed: int = 1):
        lines = [text] if isinstance(text, str) else list(text)
        if not all(isinstance(line, str) for line in lines):
            raise Error(-1, NOT_TAKEN)
        text = "\n".join(lines)
        e, p = _ffi.new("hs_error *"), _ffi.new("hs_model **")
        _check(_lib.hs_model_new(text.encode(), seed, p, e), e)
        self._m = p[0]

    @classmethod
    def load(cls, folder: str) -> "Model":
        """From a folder that save() or train() wrote."""
        e, p = _ffi.new("hs_error *"), _ffi.new("hs_model **")
        _check(_lib.hs_model_load(os.fsencode(folder), p, e), e)
        self = cls.__new__(cls)
        self._m = p[0]
        return self

    def save(self, folder: str) -> None:
        """config.json and model.safetensors."""
        e = _ffi.new("hs_error *")
        _check(_lib.hs_model_save(self._m, os.fsencode(folder), e), e)

    def close(self) -> None:
        """Gives the model back; using it afterwards is an Error."""
        e = _ffi.new("hs_error *")
        m, self._m = self._m, _ffi.NULL
        _check(_lib.hs_model_free(m, e), e)

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_m", None):
            _lib.hs_model_free(self._m, _ffi.NULL)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The parameters by name, with their shapes."""
        out, p, e = {}, _ffi.new("hs_param *"), _ffi.new("hs_error *")
        for i in range(_lib.hs_model_params(self._m)):
            _check(_lib.hs_model_param(self._m, i, p, e), e)
            out[_ffi.string(p.name).decode()] = tuple(p.dim[k] for k in range(p.ndim))
        return out

    def __getitem__(self, name: str) -> np.ndarray:
        """The values of a parameter, a copy."""
        shape = self.shapes().get(name, (0,))
        v, e = np.empty(shape, np.float32), _ffi.new("hs_error *")
        _check(_lib.hs_model_get(self._m, name.encode(), _floats(v), v.size, e), e)
        return v

    def __setitem__(self, name: str, value: Any) -> None:
        v, e = np.ascontiguousarray(value, np.float32), _ffi.new("hs_error *")
        _check(_lib.hs_model_set(self._m, name.encode(), _floats(v), v.size, e), e)

    def state_dict(self) -> dict[str, np.ndarray]:
        """All parameters by name."""
        return {name: self[name] for name in self.shapes()}

    def load_state_dict(self, values: Any) -> None:
        """Takes the values of a PyTorch nn.Sequential of modules that are blocks here (the module,
        or its state_dict()), by name; shapes may differ where the numbers are the same (the
        kernels of a convolution). An embedding that is module 0 there is `embed` here, and the
        others have numbers one smaller. save_to() is the way back."""
        if hasattr(values, "state_dict"):
            values = values.state_dict()
        if not isinstance(values, Mapping):
            raise Error(-1, NOT_TAKEN)
        names = list(self.shapes())
        if "embed.weight" in names and "embed.weight" not in values:
            moved = {}
            for key, v in values.items():
                first, rest = key.split(".", 1)
                moved["embed." + rest if first == "0" else f"{int(first) - 1}.{rest}"] = v
            values = moved
        missing, more = set(names) - set(values), set(values) - set(names)
        if missing or more:
            raise Error(
                -1, f"missing: {sorted(missing)}; not of the model: {sorted(more)}; {NOT_TAKEN}"
            )
        for name in names:
            v = values[name]
            self[name] = v.detach().cpu().numpy() if hasattr(v, "detach") else v

    def save_to(self, module: Any) -> None:
        """Writes the values into a PyTorch nn.Sequential of the same modules."""
        values = module.state_dict()
        shift = "embed.weight" in self.shapes() and "embed.weight" not in values
        for name, v in self.state_dict().items():
            if shift:
                first, rest = name.split(".", 1)
                name = f"{0 if first == 'embed' else int(first) + 1}.{rest}"
            if name not in values or values[name].numel() != v.size:
                raise Error(-1, f"the module has no '{name}' of {v.size} numbers; {NOT_TAKEN}")
            to = values[name]
            to.copy_(to.new_tensor(v).reshape(to.shape))

    def summary(self) -> str:
        """A table of blocks, shapes, parameters and FLOP."""
        n = _lib.hs_model_summary(self._m, _ffi.NULL, 0)
        if n < 0:
            raise Error(n, "the model is closed, or in use")
        out = _ffi.new("char[]", n + 1)
        _lib.hs_model_summary(self._m, out, n + 1)
        return _ffi.string(out).decode()

    def predict(self, x: Any, device: str | None = "cpu") -> np.ndarray:
        """What goes into the loss, for samples x: (samples, ..., numbers of a row); of a model of
        tokens (samples, length)."""
        x = _numbers(x, _ids(self) & 1)
        width, out = _lib.hs_model_input(self._m), _lib.hs_model_output(self._m)
        each = x[0].size if x.ndim and len(x) else 0
        length = each // width if width else 0
        if width and x.size and (not length or each != length * width):
            raise Error(-1, f"a sample has {each} numbers; the model reads {width}")
        y, e = np.empty((len(x), length, out), np.float32), _ffi.new("hs_error *")
        dev = _ffi.NULL if device is None else _ffi.new("char[]", device.encode())
        _check(
            _lib.hs_predict(self._m, dev, _address(x), len(x), length, _floats(y), e),
            e,
        )
        return y[:, 0] if length == 1 else y

    def evaluate(
        self, x: Any, y: Any = None, device: str | None = "cpu", batch: int = 0
    ) -> Evaluation:
        """Loss and accuracy over samples: arrays x and y, or x is data as train() takes it."""
        data = _Data(self, x if y is None else (x, y))
        v, e = _ffi.new("hs_evaluation *"), _ffi.new("hs_error *")
        dev = _ffi.NULL if device is None else _ffi.new("char[]", device.encode())
        rc = _lib.hs_evaluate(self._m, data.c, dev, batch, v, e)
        data.reraise()
        _check(rc, e)
        return Evaluation(v.loss, v.accuracy, v.rows)


def _ids(model: Model) -> int:
    """1: its input is ids; 2: its targets are classes."""
    return max(int(_lib.hs_model_ids(model._m)), 0)


def _numbers(a: Any, ids: int) -> np.ndarray:
    """float32, or of ids int32, contiguous; copied only when it is something else."""
    a = np.asarray(a)
    if not ids:
        return np.ascontiguousarray(a, np.float32)
    if a.dtype.kind not in "iubf":
        a = a.astype(np.float64)
    least, most = (a.min(), a.max()) if a.size else (0, 0)
    whole = a.dtype.kind != "f" or (a == np.rint(a)).all()
    if not (whole and -(2**31) <= least and most < 2**31):
        raise Error(-1, "ids and classes are whole numbers of 32 bits")
    return np.ascontiguousarray(a, np.int32)


def _address(a: np.ndarray) -> Any:
    return _ffi.cast("void *", a.ctypes.data if a.size else 0)


def _floats(a: np.ndarray) -> Any:
    return _ffi.cast("float *", a.ctypes.data)


class _Data:
    """hs_data of two arrays, without a copy, of files, or of samples (x, y) by index or in
    turn."""

    def __init__(self, model: Model, data: Any, held: int = 0, version: int = 0):
        self.error: BaseException | None = None
        self.c = _ffi.new("hs_data *")
        self.c.size = _ffi.sizeof("hs_data")
        width = _lib.hs_model_input(model._m)
        target = _lib.hs_model_target(model._m)
        if not width:
            raise Error(-1, "there is no such model: it was closed, or is in use")
        self.released = False
        ids = _ids(model)
        self.ids = (ids & 1, ids & 2)
        if isinstance(data, Files):
            self.items = self.released = None
            self.open_files(model, data, held or data.held)
            return
        if isinstance(data, tuple) and len(data) == 2 and hasattr(data[0], "shape"):
            x, y = (_numbers(a, i) for a, i in zip(data, self.ids))
            if len(x) != len(y):
                raise Error(-1, f"{len(x)} samples and {len(y)} targets")
            length = x[0].size // width if len(x) and width else 0
            if not length or x[0].size != length * width or y[0].size != length * target:
                raise Error(
                    -1,
                    f"a sample has {x[0].size if len(x) else 0} numbers and a target of "
                    f"{y[0].size if len(y) else 0}; the model reads {width} and compares {target}",
                )
            self.keep = (x, y)
            xa, ya = x.ctypes.data, y.ctypes.data
            self.items = None
            e = _ffi.new("hs_error *")
            _check(
                _lib.hs_data_arrays(
                    model._m,
                    _ffi.cast("void *", xa),
                    _ffi.cast("void *", ya),
                    len(x),
                    length,
                    self.c,
                    e,
                ),
                e,
            )
            self.c.count = len(x) - held
        else:
            self.items = data if hasattr(data, "__getitem__") else list(data)
            if not len(self.items):
                raise Error(-1, "the data has no samples")
            first = np.asarray(self.items[0][0])
            self.length = max(first.size // width, 1) if width else 1
            self.sizes = (self.length * width * 4, self.length * target * 4)
            self.callback = _ffi.callback("int(void *, uint64_t, void *, void *)", self.get)
            self.c.count = len(self.items) - held
            self.c.length = self.length
            self.c.get = self.callback
        self.c.held = held
        self.c.version = version

    def open_files(self, model: Model, files: Files, held: int) -> None:
        f, e = _ffi.new("hs_files *"), _ffi.new("hs_error *")
        f.size = _ffi.sizeof("hs_files")
        keep = []
        for name in ("x", "y", "x_columns", "y_columns"):
            value = getattr(files, name)
            if value is not None:
                keep.append(_ffi.new("char[]", os.fsencode(value)))
                setattr(f, name, keep[-1])
        for name in ("length", "scale", "shift", "block", "mixed"):
            setattr(f, name, getattr(files, name))
        f.held = held
        _check(_lib.hs_data_files(model._m, f, self.c, e), e)

    def get(self, _: Any, index: int, x: Any, y: Any) -> int:
        try:
            pair = self.items[index]
            if len(pair) != 2:
                raise ValueError(f"sample {index} is not a pair (x, y)")
            for to, size, v, ids in zip((x, y), self.sizes, pair, self.ids):
                v = _numbers(v, ids)
                if v.nbytes != size:
                    raise ValueError(f"sample {index} has {v.nbytes} bytes, not {size}")
                _ffi.memmove(to, _ffi.from_buffer(v), size)
            return 0
        except BaseException as e:  # goes on in the caller's frame
            self.error = e
            return -1

    def reraise(self) -> None:
        if self.error is not None:
            raise self.error

    def __del__(self) -> None:
        if getattr(self, "items", 0) is None:
            _lib.hs_data_release(self.c)


def _text(v: Any) -> str:
    if isinstance(v, bool):
        return str(v).lower()
    return ",".join(map(_text, v)) if isinstance(v, (list, tuple)) else str(v)


class _Options:
    """hs_options, with what it refers to."""

    def __init__(
        self,
        config: str | None,
        settings: Mapping[str, Any],
        devices: Sequence[str] = (),
        worker: Sequence[str] = (),
    ):
        self.c = o = _ffi.new("hs_options *")
        o.size = _ffi.sizeof("hs_options")
        texts = [_ffi.new("char[]", f"{k}={_text(v)}".encode()) for k, v in settings.items()]
        names = [_ffi.new("char[]", d.encode()) for d in devices]
        words = [_ffi.new("char[]", os.fsencode(w)) for w in worker]
        set_p = _ffi.new("char const *[]", texts or 1)
        dev_p = _ffi.new("char const *[]", names or 1)
        worker_p = _ffi.new("char *[]", words + [_ffi.NULL])
        self.keep = [texts, names, words, set_p, dev_p, worker_p]
        o.set, o.sets, o.device, o.devices = set_p, len(texts), dev_p, len(names)
        if words:
            o.worker = worker_p
        if config is not None:
            path = _ffi.new("char[]", os.fsencode(config))
            self.keep.append(path)
            o.config = path


class _CtrlC:
    """Ctrl-C while the library works, where Python itself would raise KeyboardInterrupt: it is
    counted in `seen`, so that what runs can end in good order (`stop`), and raised behind that.
    Python calls its own handlers only between its own instructions, of which there are none while
    the library measures; so a thread reads of the signal where Python writes it to."""

    def __init__(self) -> None:
        self.seen = 0
        self.stop = _ffi.new("int *")
        self.mine = threading.current_thread() is threading.main_thread() and (
            signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )

    def _read(self) -> None:
        while (signals := self._ours.recv(64)) and 0 not in signals:
            self.seen += signals.count(signal.SIGINT)
            if self.seen:
                self.stop[0] = 1

    def __enter__(self) -> "_CtrlC":
        if self.mine:
            self._ours, self._theirs = socket.socketpair()
            self._theirs.setblocking(False)
            signal.signal(signal.SIGINT, lambda *_: None)
            self._before = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.set_wakeup_fd(self._before)
            self._theirs.send(b"\0")
            self._thread.join()
            self._ours.close()
            self._theirs.close()
        if self.seen:
            raise KeyboardInterrupt


class _Told:
    """The callbacks of a run. What one raises is kept, and ends the run."""

    def __init__(self, options: _Options, ctrl_c: _CtrlC, **functions: Callable[..., Any] | None):
        self.raised: list[BaseException] = []
        self.ctrl_c = ctrl_c
        self.functions = functions
        self.keep = []
        kinds = {
            "step": "int(void *, hs_step const *, double *)",
            "evaluated": "int(void *, hs_evaluation const *)",
            "saved": "int(void *, uint64_t, char const *)",
            "changed": "int(void *, hs_change const *)",
        }
        for name, kind in kinds.items():
            if functions.get(name) or name == "step":
                self.keep.append(_ffi.callback(kind, getattr(self, name), error=-1))
                setattr(options.c.on, name, self.keep[-1])

    def call(self, name: str, value: Any, rate: Any = None) -> int:
        try:
            answer = self.functions[name](value) if self.functions[name] else None
            if self.ctrl_c.seen > 1:
                raise KeyboardInterrupt
            if answer is False:
                return 1
            if rate is not None and isinstance(answer, float):
                rate[0] = answer
            return 0
        except BaseException as e:  # goes on in the caller's frame
            self.raised.append(e)
            return -1

    def step(self, _: Any, s: Any, rate: Any) -> int:
        names = list(Step.__dataclass_fields__)
        values = {n: getattr(s, n) for n in names}
        values["skipped"] = bool(s.skipped)
        return self.call("step", Step(**values), rate)

    def evaluated(self, _: Any, v: Any) -> int:
        return self.call("evaluated", Evaluation(v.loss, v.accuracy, v.rows, v.step))

    def saved(self, _: Any, step: int, path: Any) -> int:
        return self.call("saved", os.fsdecode(_ffi.string(path)))

    def changed(self, _: Any, c: Any) -> int:
        words = [_ffi.string(t).decode(errors="replace") for t in (c.event, c.text)]
        return self.call("changed", Change(words[0], words[1], c.step))


def train(
    model: Model | None = None,
    data: Any = None,
    *,
    config: str | None = None,
    callback: Callable[[Step], Any] | None = None,
    on_evaluation: Callable[[Evaluation], Any] | None = None,
    on_saved: Callable[[str], Any] | None = None,
    on_change: Callable[[Change], Any] | None = None,
    devices: Sequence[str] = (),
    worker: Sequence[str] = (),
    held: int = 0,
    version: int = 0,
    **settings: Any,
) -> Result:
    """Trains `model` on `data`: a tuple of arrays (x, y), Files, or anything with samples (x, y)
    by index or in turn; the last `held` samples are only evaluated. Without both, what the
    configuration says; train("job.yaml") is the same as train(config="job.yaml").

    Settings are keys of a configuration (learning_rate=0.01, max_steps=100, output_dir="run").
    `callback` gets each Step; False stops the run, a float is the next step's learning rate. What
    it raises is raised here. The other callbacks may stop the run too, and so does Ctrl-C: the step
    is finished and saved, then KeyboardInterrupt is raised. `devices`: a worker in this
    process for each, ("cpu", "opencl:0"). `worker`: argv that starts one of this machine for a job
    over machines.
    """
    if isinstance(model, (str, os.PathLike)):
        model, config = None, os.fspath(model)
    options = _Options(config, settings, devices, worker)
    r, e = _ffi.new("hs_result *"), _ffi.new("hs_error *")
    ctrl_c = _CtrlC()
    options.c.stop = ctrl_c.stop
    told = _Told(
        options,
        ctrl_c,
        step=callback,
        evaluated=on_evaluation,
        saved=on_saved,
        changed=on_change,
    )
    d = _Data(model, data, held, version) if data is not None and model is not None else None
    m = model._m if model is not None else _ffi.NULL
    _raised.clear()
    try:
        with ctrl_c:
            rc = _lib.hs_train(m, d.c if d else _ffi.NULL, options.c, r, e)
        if told.raised:
            raise told.raised[0]
        if rc < 0 and _raised:
            raise _raised[0]
        if d:
            d.reraise()
        _check(rc, e)
        history = [
            (
                np.frombuffer(_ffi.buffer(v, r.steps * 8), np.float64).copy()
                if r.steps
                else np.empty(0)
            )
            for v in (r.loss, r.learning_rate, r.grad_norm)
        ]
        return Result(
            r.step,
            r.total,
            bool(r.stopped),
            r.held_before,
            r.held_after,
            r.seconds,
            r.first_step,
            *history,
        )
    finally:
        _lib.hs_result_release(r)


class Job:
    """A run in a thread of its own, as a context: it takes the arguments of train(), gives the
    steps as they are done, and is stopped after a step when the context ends before it.

    with hs.Job(model, (x, y), num_epochs=5) as job:
        for step in job:
            if step.loss < 0.1:
                break
    print(job.result.loss[-1])
    """

    def __init__(self, *args: Any, **settings: Any):
        self._args, self._settings = args, settings
        self._callback = settings.pop("callback", None)
        self._steps: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._result: Result | None = None
        self._error: BaseException | None = None

    def _told(self, step: Step) -> Any:
        self._steps.put(step)
        answer = self._callback(step) if self._callback else None
        return False if self._stop.is_set() else answer

    def _run(self) -> None:
        try:
            self._result = train(*self._args, callback=self._told, **self._settings)
        except BaseException as e:  # raised in the thread that waits for the result
            self._error = e
        finally:
            self._steps.put(None)

    def __enter__(self) -> "Job":
        self._thread.start()
        return self

    def __iter__(self) -> Iterator[Step]:
        while (step := self._steps.get()) is not None:
            yield step
        self._steps.put(None)  # for a second look

    def stop(self) -> None:
        """The run ends after the step that it is in, and is saved."""
        self._stop.set()

    @property
    def result(self) -> Result:
        """Waits for the end."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.stop()
        self._thread.join()
        if kind is None and self._error is not None:
            raise self._error


def _json(call: Callable[..., int], options: _Options, *args: Any) -> dict[str, Any]:
    text, e, ctrl_c = _ffi.new("char **"), _ffi.new("hs_error *"), _CtrlC()
    options.c.stop = ctrl_c.stop
    try:
        with ctrl_c:
            rc = call(options.c, *args, text, e)
        _check(rc, e)
        return json.loads(_ffi.string(text[0]))
    finally:
        _lib.hs_text_release(text[0])


def profile(config: str, *, worker: Sequence[str] = (), **settings: Any) -> dict[str, Any]:
    """Measures the devices and links of a job: what `heteroshard profile` writes."""
    return _json(_lib.hs_profile, _Options(os.fspath(config), settings, (), worker))


def plan(
    config: str | None = None,
    *,
    profile: str | None = None,
    worker: Sequence[str] = (),
    **settings: Any,
) -> dict[str, Any]:
    """The plan of a job with what it predicts: what `heteroshard plan --json` prints. `profile`: a
    profile.json; without one the job is measured. Without `config` the plan for a profile alone.
    """
    path = _ffi.NULL if profile is None else _ffi.new("char[]", os.fsencode(profile))
    options = _Options(None if config is None else os.fspath(config), settings, (), worker)
    return _json(_lib.hs_plan, options, path)


def generate(
    model: str,
    prompt: str,
    *,
    adapter: str | None = None,
    device: str | None = None,
    system: str | None = None,
    chat_template: str | None = None,
    raw: bool = False,
    most: int = 256,
    temperature: float = 0.7,
    top_p: float = 0.95,
    top_k: int = 0,
    seed: int = 0,
    callback: Callable[[str], Any] | None = None,
) -> str:
    """A language model's answer to a prompt. `callback` gets the text part by part; False ends
    it."""
    g, e = _ffi.new("hs_generation *"), _ffi.new("hs_error *")
    g.size = _ffi.sizeof("hs_generation")
    keep, parts, raised = [], [], []
    words = {
        "model": os.fspath(model),
        "adapter": adapter,
        "device": device,
        "system": system,
        "chat_template": chat_template,
        "prompt": prompt,
    }
    for name, value in words.items():
        if value is not None:
            keep.append(_ffi.new("char[]", value.encode()))
            setattr(g, name, keep[-1])
    g.raw, g.most, g.temperature, g.top_p, g.top_k, g.seed = (
        int(raw),
        most,
        temperature,
        top_p,
        top_k,
        seed,
    )

    ctrl_c = _CtrlC()

    def told(_: Any, text: Any, n: int) -> int:
        try:
            parts.append(_ffi.buffer(text, n)[:].decode(errors="replace"))
            enough = callback is not None and callback(parts[-1]) is False
            return int(enough or ctrl_c.seen > 0)
        except BaseException as e:  # goes on in the caller's frame
            raised.append(e)
            return -1

    function = _ffi.callback("int(void *, char const *, size_t)", told, error=-1)
    g.text = function
    with ctrl_c:
        rc = _lib.hs_generate(g, _ffi.NULL, e)
    if raised:
        raise raised[0]
    _check(rc, e)
    return "".join(parts)


def command(*words: str, input: str | bytes = b"") -> str:
    """What `heteroshard WORDS` prints: command("eval", "model.gguf", "--data", "held-out.jsonl",
    "--json"). Its error line is raised; messages are dropped. Ctrl-C is what it is on the command
    line, and then raises KeyboardInterrupt."""
    parts: list[bytes] = []

    def take(_: Any, text: Any, n: int) -> int:
        parts.append(_ffi.buffer(text, n)[:])
        return 0

    io, e, status = _ffi.new("hs_io *"), _ffi.new("hs_error *"), _ffi.new("int *")
    io.size = _ffi.sizeof("hs_io")
    data = input.encode() if isinstance(input, str) else input
    function = _ffi.callback("int(void *, char const *, size_t)", take)
    text = _ffi.from_buffer(data)
    io.out, io.input, io.input_size = function, text, len(data)
    texts = [_ffi.new("char[]", os.fsencode(w)) for w in words]
    argv, stop, rc = _ffi.new("char const *[]", texts or 1), _ffi.new("int *"), []
    io.stop = stop
    done = threading.Event()

    def run() -> None:
        rc.append(_lib.hs_command(argv, len(texts), io, status, e))
        done.set()

    # in a thread of its own, so that this one hears of Ctrl-C
    threading.Thread(target=run).start()
    interrupt = None
    while not done.is_set():
        try:
            done.wait()
        except KeyboardInterrupt as k:
            interrupt = k
            stop[0] = 1
    if interrupt is not None:
        raise interrupt
    _check(rc[0], e)
    return b"".join(parts).decode(errors="replace")
