"""The part of XLA's call interface that `xla_call` relies on, and whether the installed XLA has it.

XLA hands a `CallFrame` to the functions registered with it.  The tables below are the structures of `c_api.h` (which
comes with jaxlib) at version 0.3, field by field, and every offset that compiled code uses is computed from them.
XLA promises that a new minor version only adds fields at the end of a structure, so the version and the sizes are
compared once with what the installed XLA says of itself; where they differ, `difference` says how, and the exact
solver stays on the host.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_uint32, c_void_p
from functools import cache
from typing import Any

import jax
import numpy as np

VERSION = (0, 3)
"""XLA_FFI_API_MAJOR and XLA_FFI_API_MINOR of the header that the tables are taken from."""
METADATA_EXTENSION = 1
"""XLA_FFI_Extension_Metadata: XLA asks which version a function was written for."""
TARGET = "caql_interface"


class ApiVersion(ctypes.Structure):
    """XLA_FFI_Api_Version."""

    _fields_ = (
        ("struct_size", c_int64),
        ("extension_start", c_void_p),
        ("major_version", c_int32),
        ("minor_version", c_int32),
    )


class Api(ctypes.Structure):
    """XLA_FFI_Api, as far as the version."""

    _fields_ = (("struct_size", c_int64), ("extension_start", c_void_p), ("api_version", ApiVersion))


class Extension(ctypes.Structure):
    """XLA_FFI_Extension_Base, and the field with which XLA_FFI_Metadata_Extension continues it."""

    _fields_ = (("struct_size", c_int64), ("type", c_int32), ("next", c_void_p), ("metadata", c_void_p))


class Metadata(ctypes.Structure):
    """XLA_FFI_Metadata, as far as the fields that a function without state fills in."""

    _fields_ = (("struct_size", c_int64), ("api_version", ApiVersion), ("traits", c_uint32))


class Buffer(ctypes.Structure):
    """XLA_FFI_Buffer."""

    _fields_ = (
        ("struct_size", c_int64),
        ("extension_start", c_void_p),
        ("dtype", c_int32),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", c_void_p),
    )


class Values(ctypes.Structure):
    """XLA_FFI_Args and XLA_FFI_Rets, which are alike: `values` is the address of `size` addresses of buffers."""

    _fields_ = (
        ("struct_size", c_int64),
        ("extension_start", c_void_p),
        ("size", c_int64),
        ("types", c_void_p),
        ("values", c_void_p),
    )


class Attributes(ctypes.Structure):
    """XLA_FFI_Attrs."""

    _fields_ = (
        ("struct_size", c_int64),
        ("extension_start", c_void_p),
        ("size", c_int64),
        ("types", c_void_p),
        ("names", c_void_p),
        ("attrs", c_void_p),
    )


class CallFrame(ctypes.Structure):
    """XLA_FFI_CallFrame; the header does not count the field after `attrs` in its size either."""

    _fields_ = (
        ("struct_size", c_int64),
        ("extension_start", c_void_p),
        ("api", c_void_p),
        ("ctx", c_void_p),
        ("stage", c_int32),
        ("args", Values),
        ("rets", Values),
        ("attrs", Attributes),
    )


SIZES: dict[str, int] = {
    "XLA_FFI_CallFrame": ctypes.sizeof(CallFrame),
    "XLA_FFI_Args": ctypes.sizeof(Values),
    "XLA_FFI_Rets": ctypes.sizeof(Values),
    "XLA_FFI_Buffer": ctypes.sizeof(Buffer),
    "XLA_FFI_Api_Version": ctypes.sizeof(ApiVersion),
    "XLA_FFI_Metadata": Metadata.traits.offset + Metadata.traits.size,
    "XLA_FFI_Metadata_Extension": ctypes.sizeof(Extension),
}
"""What each structure's `struct_size` says in this version."""


def word(structure: type[ctypes.Structure], *fields: str) -> int:
    """How many words of eight bytes lie before a field, or before a field of that field."""
    offset = 0
    for name in fields:
        offset += getattr(structure, name).offset
        structure = dict(structure._fields_)[name]
    assert offset % 8 == 0
    return offset // 8


def _sizes_seen(frame: Any, seen: dict[str, int]) -> None:
    """Note what XLA says of the structures in a frame; answer if it asks for the version."""
    seen["XLA_FFI_CallFrame"] = frame.struct_size
    if frame.extension_start:
        extension = Extension.from_address(frame.extension_start)
        if extension.type == METADATA_EXTENSION:
            metadata = Metadata.from_address(extension.metadata)
            version = Api.from_address(frame.api).api_version
            seen["major"], seen["minor"] = version.major_version, version.minor_version
            seen["XLA_FFI_Api_Version"] = version.struct_size
            seen["XLA_FFI_Metadata"] = metadata.struct_size
            seen["XLA_FFI_Metadata_Extension"] = extension.struct_size
            metadata.api_version.major_version, metadata.api_version.minor_version = VERSION
            metadata.traits = 0
        return
    for name, part in (("XLA_FFI_Args", frame.args), ("XLA_FFI_Rets", frame.rets)):
        seen[name] = part.struct_size
        seen["XLA_FFI_Buffer"] = Buffer.from_address(c_int64.from_address(part.values).value).struct_size


def _ask() -> dict[str, int]:
    """Let XLA call a function once, and return what it said of its version and structures."""
    seen: dict[str, int] = {}

    def handler(address: int) -> None:
        _sizes_seen(CallFrame.from_address(address), seen)

    function = ctypes.CFUNCTYPE(c_void_p, c_void_p)(handler)
    _KEPT.append(function)
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(function), platform="cpu")
    call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct((1,), np.float32), has_side_effect=True)
    with jax.ensure_compile_time_eval():
        jax.block_until_ready(call(np.zeros(1, np.float32)))
    return seen


_KEPT: list[Any] = []
"""XLA keeps the function's address for good."""


@cache
def difference() -> str | None:
    """How the installed XLA differs from the tables above, in a few words; None where it does not."""
    try:
        seen = _ask()
    except Exception as problem:  # XLA refuses a version, or this JAX has no such interface
        return f"it refuses version {VERSION[0]}.{VERSION[1]} ({str(problem).splitlines()[0]})"
    if seen.get("major") != VERSION[0] or seen.get("minor", 0) < VERSION[1]:
        return f"its version is {seen.get('major')}.{seen.get('minor')}, not {VERSION[0]}.{VERSION[1]}"
    for name, size in SIZES.items():
        if seen.get(name) != size:
            return f"{name} has {seen.get(name)} bytes, not {size}"
    return None
