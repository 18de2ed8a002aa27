"""Binds the functions of include/tessera.h in libtessera.so by ctypes, and turns their errors into exceptions."""

from __future__ import annotations

import ctypes
import pathlib
import re
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any, Callable, Optional

API_VERSION = 2

CHUNK, END, ERROR = 1, 2, 3
TIMEOUT = 10


class TesseraError(RuntimeError):
    """An error of the library. `code` is a value of tessera_code, and `name` its name ("invalid argument"). `field` is the
    request's member that is wrong, or ""."""

    def __init__(self, code: int, message: str, field: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.name = _lib.tessera_code_name(code).decode()
        self.field = field


class Event(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("kind", c_int32), ("code", c_int32), ("json", c_char_p), ("json_size", c_size_t)]


# A callback gets a pointer to its event.
ON_EVENT = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Event))


class Submission(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("path", c_char_p), ("body", c_char_p), ("body_size", c_size_t),
                ("on_event", ON_EVENT), ("user", c_void_p)]


def _load() -> ctypes.CDLL:
    path = pathlib.Path(__file__).with_name("lib") / "libtessera.so.1"
    library = ctypes.CDLL(str(path))
    error = POINTER(c_void_p)
    text = POINTER(c_void_p)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "tessera_api_version": (c_uint32, []),
        "tessera_version": (c_char_p, []),
        "tessera_code_name": (c_char_p, [c_int]),
        "tessera_error_message": (c_char_p, [c_void_p]),
        "tessera_error_field": (c_char_p, [c_void_p]),
        "tessera_error_free": (None, [c_void_p]),
        "tessera_free": (None, [c_void_p]),
        "tessera_open": (c_int, [c_char_p, POINTER(c_void_p), error]),
        "tessera_close": (c_int, [c_void_p, error]),
        "tessera_health": (c_int, [c_void_p, error]),
        "tessera_explain": (c_int, [c_char_p, text, error]),
        "tessera_info": (c_int, [c_void_p, text, error]),
        "tessera_metrics": (c_int, [c_void_p, text, error]),
        "tessera_tokenize": (c_int, [c_void_p, c_char_p, c_size_t, c_int, POINTER(POINTER(c_int32)), POINTER(c_size_t), error]),
        "tessera_detokenize": (c_int, [c_void_p, POINTER(c_int32), c_size_t, c_int, text, POINTER(c_size_t), error]),
        "tessera_apply_chat_template": (c_int, [c_void_p, c_char_p, text, error]),
        "tessera_lora_load": (c_int, [c_void_p, c_char_p, error]),
        "tessera_lora_unload": (c_int, [c_void_p, c_char_p, error]),
        "tessera_lora_wait": (c_int, [c_void_p, c_char_p, c_int64, error]),
        "tessera_lora_list": (c_int, [c_void_p, text, error]),
        "tessera_submit": (c_int, [c_void_p, POINTER(Submission), POINTER(c_void_p), error]),
        "tessera_request_next": (c_int, [c_void_p, c_int64, POINTER(Event), error]),
        "tessera_request_cancel": (None, [c_void_p]),
        "tessera_request_free": (None, [c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    if library.tessera_api_version() < API_VERSION:
        raise ImportError(f"{path} has version {library.tessera_api_version()} of the interface; needed is {API_VERSION}")
    return library


_lib = _load()


def version() -> str:
    return str(_lib.tessera_version().decode())


def in_python(message: str) -> str:
    """Returns the message with flags replaced by keyword arguments: page_size for --page-size. --help stays as it is."""
    message = re.sub(r"^options:\d+: ", "", message)
    message = re.sub(r"^unknown flag (\S+) of tessera_open", r"unknown option \1", message)
    return re.sub(r"(?<![\w-])--(?!help\b)([a-z][a-z0-9]*(?:-[a-z0-9]+)*)", lambda flag: flag[1].replace("-", "_"), message)


def call(function: str, *arguments: Any) -> None:
    """Calls a function whose last parameter receives its error, and raises this error."""
    error = c_void_p()
    code = getattr(_lib, function)(*arguments, byref(error))
    if code == 0:
        return
    message = in_python(_lib.tessera_error_message(error).decode())
    field = _lib.tessera_error_field(error).decode()
    _lib.tessera_error_free(error)
    raise TesseraError(code, message, field)


def call_for_text(function: str, *arguments: Any) -> str:
    """Calls a function whose last two parameters receive a text and an error. Returns the text, or raises the error."""
    text = c_void_p()
    call(function, *arguments, byref(text))
    try:
        return ctypes.string_at(text.value or 0).decode()
    finally:
        _lib.tessera_free(text)


def open_engine(options: str) -> c_void_p:
    engine = c_void_p()
    call("tessera_open", options.encode(), byref(engine))
    return engine


def tokenize(engine: c_void_p, text: str, special: bool) -> list[int]:
    ids = POINTER(c_int32)()
    count = c_size_t()
    data = text.encode()
    call("tessera_tokenize", engine, data, len(data), int(special), byref(ids), byref(count))
    try:
        return ids[:count.value]
    finally:
        _lib.tessera_free(ids)


def detokenize(engine: c_void_p, ids: list[int], skip_special: bool) -> str:
    for place, token in enumerate(ids):
        if not -2**31 <= token < 2**31:  # ctypes would cut it to 32 bits
            raise TesseraError(1, f"id {token} at {place} is not the model's; accepted: integers of 32 bits")
    text = c_void_p()
    size = c_size_t()
    call("tessera_detokenize", engine, (c_int32 * len(ids))(*ids), len(ids), int(skip_special), byref(text), byref(size))
    try:
        return ctypes.string_at(text.value or 0, size.value).decode()
    finally:
        _lib.tessera_free(text)


def _adapter_name(name: str) -> bytes:
    if not isinstance(name, str) or "\0" in name:  # C would read the name only up to a NUL
        raise TesseraError(1, f"lora_name: {name!r} is not accepted; a string without NUL characters is", "lora_name")
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise TesseraError(1, f"lora_name: {name!r} is not accepted; text that UTF-8 can write is", "lora_name") from error


def unload_adapter(engine: c_void_p, name: str) -> None:
    call("tessera_lora_unload", engine, _adapter_name(name))


def wait_for_adapter(engine: c_void_p, name: str, timeout_ms: int) -> bool:
    """Waits until no request uses an unloaded adapter. Returns False after the time-out."""
    try:
        call("tessera_lora_wait", engine, _adapter_name(name), timeout_ms)
    except TesseraError as error:
        if error.code == TIMEOUT:
            return False
        raise
    return True


_here = threading.local()


def in_callback() -> bool:
    """Returns whether this thread runs a callback. The library refuses calls from a callback that would wait for the engine's
    thread, but the garbage collector may make such calls, because it runs on any thread."""
    return getattr(_here, "in_callback", False)


def _free(request: c_void_p, _callback: Any) -> None:
    """Frees a request. `_callback` keeps the callback's code alive, because it may run until this function returns."""
    _lib.tessera_request_free(request)


class Request:
    """One submitted request. If `on_event` is given, on_event(kind, code, json) is called on the engine's thread. Otherwise
    next() returns the events; one thread at a time may call it."""

    def __init__(self, engine: c_void_p, path: str, body: str, on_event: Optional[Callable[[int, int, str], None]] = None) -> None:
        self._handle = c_void_p()
        self._callback = ctypes.cast(0, ON_EVENT)
        if on_event is not None:
            report = on_event

            def call_back(_user: Any, event: Any) -> int:
                told = event.contents
                _here.in_callback = True
                try:
                    report(told.kind, told.code, ctypes.string_at(told.json, told.json_size).decode())
                except Exception:  # the receiver no longer exists; C code cannot take an exception
                    return 1
                finally:
                    _here.in_callback = False
                return 0

            self._callback = ON_EVENT(call_back)
        data = body.encode()
        submission = Submission(ctypes.sizeof(Submission), path.encode(), data, len(data), self._callback, None)
        call("tessera_submit", engine, byref(submission), byref(self._handle))

    def next(self, timeout_ms: int) -> Optional[tuple[int, int, str]]:
        """Returns the next event as (kind, code, json), or None after the time-out."""
        event = Event(ctypes.sizeof(Event))
        try:
            call("tessera_request_next", self._handle, timeout_ms, byref(event))
        except TesseraError as error:
            if error.code == TIMEOUT:
                return None
            raise
        return event.kind, event.code, ctypes.string_at(event.json, event.json_size).decode()

    def free(self) -> None:
        """Frees the request, and cancels it if it has not ended. Waits for a running callback to return. Within a callback
        another thread does this, because a callback cannot wait for itself."""
        handle, self._handle = self._handle, c_void_p()
        if handle and in_callback():
            threading.Thread(target=_free, args=(handle, self._callback)).start()
        else:
            _free(handle, self._callback)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.free()
