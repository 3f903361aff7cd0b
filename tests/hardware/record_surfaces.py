"""Records what surface instructions do on a GPU: every job of tests/oracle/surface_jobs.py.

    PYTHONPATH=tests/oracle python tests/hardware/record_surfaces.py OUT.json.gz

Needs ptxas and a GPU of sm_90. Several processes share the jobs; one whose launch faults ends, and
another goes on behind that job. Kept are digests of what was read or of the surface's bytes, and
the codes of faults.
"""

import contextlib
import ctypes
import gzip
import hashlib
import json
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from surface_jobs import FORMATS, SIZES, jobs, kernel, start

WORKERS = 8
_SIZE, _POINTER, _WORD = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint64
_LAYERED, _SURFACE, _CUBE = 1, 2, 4
_HOST, _ARRAY = 1, 3


class ArrayDescriptor(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = (
        ("w", _SIZE), ("h", _SIZE), ("d", _SIZE), ("format", ctypes.c_int),
        ("channels", ctypes.c_uint), ("flags", ctypes.c_uint),
    )  # fmt: skip


def _side(letter):
    names = [(letter + axis, _SIZE) for axis in ("x", "y", "z", "l")]
    return [*names, (letter + "t", ctypes.c_int), (letter + "h", _POINTER), (letter + "d", _WORD),
            (letter + "a", _POINTER), (letter + "r", _POINTER), (letter + "p", _SIZE),
            (letter + "n", _SIZE)]  # fmt: skip


class Copy(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = (*_side("s"), *_side("d"), ("w", _SIZE), ("h", _SIZE), ("d", _SIZE))


class Resource(ctypes.Structure):
    """CUDA_RESOURCE_DESC of an array."""

    _fields_ = (
        ("type", ctypes.c_int), ("array", _POINTER), ("rest", ctypes.c_byte * 120),
        ("flags", ctypes.c_uint), ("pad", ctypes.c_uint),
    )  # fmt: skip


class FaultError(Exception):
    """A function of the driver returned another code than 0."""


class RefusedError(FaultError):
    """The driver does not load a module; the context lives on."""


class Gpu:
    """A context with the surfaces and modules that were needed so far."""

    def __init__(self, folder):
        self.lib, self.folder = ctypes.CDLL("libcuda.so.1"), Path(folder)
        self.made, self.modules = {}, {}
        device, context = ctypes.c_int(), _POINTER()
        self("cuInit", 0)
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        self.buffers = [self.allocate(1 << 21), self.allocate(1 << 22)]

    def __call__(self, name, *arguments):
        if code := getattr(self.lib, name)(*arguments):
            raise FaultError(name, code)

    def allocate(self, size):
        out = _WORD()
        self("cuMemAlloc_v2", ctypes.byref(out), _SIZE(size))
        return out.value

    def function(self, name):
        if name not in self.modules:
            path, made = self.folder / f"{name}.cubin", _POINTER()
            path.with_suffix(".ptx").write_text(kernel(name))
            subprocess.run(["ptxas", "-arch", "sm_90", path.with_suffix(".ptx"), "-o", path],
                           check=True)  # fmt: skip
            try:
                self("cuModuleLoadData", ctypes.byref(made), ctypes.c_char_p(path.read_bytes()))
            except FaultError as fault:
                raise RefusedError(*fault.args) from None
            self.modules[name] = _POINTER()
            self("cuModuleGetFunction", ctypes.byref(self.modules[name]), made, name.encode())
        return self.modules[name]

    def surface(self, job):
        """Its array, and the handles of a surface and of a texture object."""
        key = job["fmt"], job["channels"], job["geo"]
        if key not in self.made:
            flags = _LAYERED if job["geo"][0] == "a" else _CUBE if job["geo"] == "cube" else 0
            code, _ = FORMATS[job["fmt"]]
            described = ArrayDescriptor(*SIZES[job["geo"]], code, job["channels"], flags | _SURFACE)
            array, surface, texture = _POINTER(), _WORD(), _WORD()
            self("cuArray3DCreate_v2", ctypes.byref(array), ctypes.byref(described))
            resource, how = Resource(0, array), (ctypes.c_uint * 64)()
            how[4] = job["fmt"][0] != "f"  # read as integers
            self("cuSurfObjectCreate", ctypes.byref(surface), ctypes.byref(resource))
            with contextlib.suppress(FaultError):
                self("cuTexObjectCreate", ctypes.byref(texture), ctypes.byref(resource), how, None)
            self.made[key] = array, surface.value, texture.value
        return self.made[key]

    def copy(self, array, held, to):
        d, h, w = held.shape
        copy = Copy(w=w, h=h, d=d)
        host, own = ("s", "d") if to else ("d", "s")
        for name, value in (("t", _HOST), ("h", held.ctypes.data), ("p", w), ("n", h)):
            setattr(copy, host + name, value)
        setattr(copy, own + "t", _ARRAY)
        setattr(copy, own + "a", array)
        self("cuMemcpy3D_v2", ctypes.byref(copy))

    def launch(self, name, handle, where, data):
        """What the kernel leaves in its data."""
        held = np.full((len(where), 4), 0xEEEEEEEEEEEEEEEE, np.uint64) if data is None else data
        where, held = np.ascontiguousarray(where), np.ascontiguousarray(held)
        for to, array in zip(self.buffers, (where, held), strict=True):
            self("cuMemcpyHtoD_v2", _WORD(to), array.ctypes.data_as(_POINTER), _SIZE(array.nbytes))
        given = [_WORD(handle), *map(_WORD, self.buffers), ctypes.c_uint(len(where))]
        pointers = (_POINTER * 4)(*[ctypes.cast(ctypes.byref(x), _POINTER) for x in given])
        function, blocks = self.function(name), -(-len(where) // 64)
        self("cuLaunchKernel", function, blocks, 1, 1, 64, 1, 1, 0, None, pointers, None)
        self("cuCtxSynchronize")
        out = np.empty((len(where), 4), np.uint64)
        to, size = out.ctypes.data_as(_POINTER), _SIZE(out.nbytes)
        self("cuMemcpyDtoH_v2", to, _WORD(self.buffers[1]), size)
        return out

    def do(self, job):
        array, surface, texture = self.surface(job)
        handles = {"surface": surface, "texture": texture, "zero": 0, "number": 0x123456789}
        handle, name, where = handles[job["what"]], job["kernel"], job["places"]
        before, out = start(job), []
        self.copy(array, before, True)
        if job["data"] is None:
            return self.launch(name, handle, where, None)
        rows = [slice(i, i + 1) for i in range(len(where))] if job["single"] else [slice(None)]
        for row in rows:
            self.copy(array, before, True)
            self.launch(name, handle, where[row], job["data"][row])
            out.append(np.empty_like(before))
            self.copy(array, out[-1], False)
        return np.stack(out)


def work(first, path):
    """Does every eighth job from `first` on, to the end or to a fault."""
    todo, _ = jobs()
    with tempfile.TemporaryDirectory() as folder:
        gpu, done, code = Gpu(folder), {}, 0
        for i in range(first, len(todo), WORKERS):
            try:
                raw = gpu.do(todo[i]).tobytes()
                done[i] = hashlib.blake2b(raw, digest_size=8).hexdigest()
            except FaultError as fault:
                done[i] = fault.args[1]
                if not isinstance(fault, RefusedError):
                    code = 3
                    break
        Path(path).write_bytes(pickle.dumps(done))
    sys.exit(code)


def main(out):
    """Writes the digests and codes of all jobs."""
    count, found, running = len(jobs()[0]), {}, {}
    waiting = list(range(WORKERS))
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            for first in waiting:
                path = f"{folder}/{first}"
                running[path] = subprocess.Popen([sys.executable, __file__, str(first), path])
            waiting = []
            for path, process in [x for x in running.items() if x[1].poll() is not None]:
                del running[path]
                done = pickle.loads(Path(path).read_bytes())
                found |= done
                if process.returncode and max(done) + WORKERS < count:
                    waiting.append(max(done) + WORKERS)
            time.sleep(0.02)
    made = {"by": "tests/hardware/record_surfaces.py", "results": [found[i] for i in range(count)]}
    Path(out).write_bytes(gzip.compress(json.dumps(made, indent=0).encode(), 9))


if __name__ == "__main__":
    work(int(sys.argv[1]), sys.argv[2]) if len(sys.argv) > 2 else main(sys.argv[1])
