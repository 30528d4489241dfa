# SPDX-License-Identifier: Apache-2.0
"""The library behind the package, through cffi, and the errors that it gives."""

from __future__ import annotations

import os
import re
from typing import Any

import cffi


def _declarations(text: str) -> str:
    """The header as cffi reads it: without comments, preprocessor and inline functions."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"(?m)^#.*(?:\\\n.*)*$", "", text)
    text = re.sub(r"HS_DEPRECATED\([^)]*\)", "", text)
    text = re.sub(r"static inline [^{]*\{.*?\n\}", "", text, flags=re.S)
    return text.replace('extern "C" {', "", 1).rstrip().rstrip("}")


def _open() -> tuple[cffi.FFI, Any]:
    here = os.path.dirname(os.path.abspath(__file__))
    near = [
        os.path.join(here, "lib/heteroshard/heteroshard.h"),
        os.path.join(here, "../../include/heteroshard.h"),
        "/usr/local/include/heteroshard.h",
        "/usr/include/heteroshard.h",
    ]
    header = os.environ.get("HETEROSHARD_HEADER") or next(filter(os.path.exists, near), None)
    if header is None:
        raise ImportError(
            "heteroshard.h is not there: name it in HETEROSHARD_HEADER ('make install-lib' copies "
            "it), or install the wheel of 'make wheel'"
        )
    ffi = cffi.FFI()
    with open(header, encoding="utf-8") as f:
        text = f.read()
    ffi.cdef(_declarations(text.replace("#ifdef __cplusplus\n}\n#endif", "")))
    own = os.path.join(here, "lib/heteroshard/libheteroshard.so.0")
    lib = ffi.dlopen(
        os.environ.get("HETEROSHARD_LIBRARY")
        or (own if os.path.exists(own) else "libheteroshard.so.0")
    )
    want = int(re.search(r"#define HS_API_VERSION (\d+)", text).group(1))
    if lib.hs_api_version() < want:
        raise ImportError(f"the library is older than {header}")
    return ffi, lib


ffi, lib = _open()


class Error(Exception):
    """What the library refused: one line; `code` as in heteroshard.h."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


def check(rc: int, error: Any) -> int:
    if rc < 0:
        raise Error(rc, ffi.string(error.text).decode(errors="replace"))
    return rc
