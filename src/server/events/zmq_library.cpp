#include "tessera/server/events/zmq_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tessera {
namespace {

template <class F>
Status find(void* library, const std::string& file, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function != nullptr) return ok_status();
  return unimplemented(fmt::format("{} has no function {}; ZeroMQ 4 and later have it", file, name));
}

}  // namespace

Result<ZmqLibrary> ZmqLibrary::open(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return not_found(
        fmt::format("events are published by ZeroMQ, whose library {} cannot be loaded ({}); install it (Debian and "
                    "Ubuntu: libzmq5, Fedora: zeromq)",
                    file, why == nullptr ? "no reason is given" : why));
  }
  ZmqLibrary zmq;
  TRY(find(library, file, "zmq_ctx_new", zmq.ctx_new));
  TRY(find(library, file, "zmq_ctx_term", zmq.ctx_term));
  TRY(find(library, file, "zmq_socket", zmq.socket));
  TRY(find(library, file, "zmq_close", zmq.close));
  TRY(find(library, file, "zmq_setsockopt", zmq.setsockopt));
  TRY(find(library, file, "zmq_getsockopt", zmq.getsockopt));
  TRY(find(library, file, "zmq_bind", zmq.bind));
  TRY(find(library, file, "zmq_connect", zmq.connect));
  TRY(find(library, file, "zmq_send", zmq.send));
  TRY(find(library, file, "zmq_recv", zmq.recv));
  TRY(find(library, file, "zmq_poll", zmq.poll));
  TRY(find(library, file, "zmq_errno", zmq.error));
  TRY(find(library, file, "zmq_strerror", zmq.error_text));
  return zmq;
}

}  // namespace tessera
