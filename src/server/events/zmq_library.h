// ZeroMQ's C interface. It is loaded at run time, so only servers that publish events need the library.
#pragma once

#include <zmq.h>

#include <string>

#include "tessera/base/status.h"

namespace tessera {

// The functions of <zmq.h> without their prefix. As in ZeroMQ, any thread may call them, but only one thread at a time
// may use a socket.
struct ZmqLibrary {
  static constexpr const char* kFile = "libzmq.so.5";

  decltype(&zmq_ctx_new) ctx_new = nullptr;
  decltype(&zmq_ctx_term) ctx_term = nullptr;
  decltype(&zmq_socket) socket = nullptr;
  decltype(&zmq_close) close = nullptr;
  decltype(&zmq_setsockopt) setsockopt = nullptr;
  decltype(&zmq_getsockopt) getsockopt = nullptr;
  decltype(&zmq_bind) bind = nullptr;
  decltype(&zmq_connect) connect = nullptr;
  decltype(&zmq_send) send = nullptr;
  decltype(&zmq_recv) recv = nullptr;
  decltype(&zmq_poll) poll = nullptr;
  decltype(&zmq_errno) error = nullptr;
  decltype(&zmq_strerror) error_text = nullptr;

  // Loads the library `file` with dlopen(). It stays loaded. Errors name the file and the package that has it.
  static Result<ZmqLibrary> open(const std::string& file = kFile);
};

}  // namespace tessera
