#include "tessera/server/events/zmq_context.h"

#include <fmt/format.h>

#include "tessera/server/events/msgpack_writer.h"

namespace tessera {

std::string number_bytes(std::uint64_t number) { return big_endian(number, 8); }

Result<std::unique_ptr<ZmqContext>> ZmqContext::create() {
  const auto library = TRY(ZmqLibrary::open());
  std::unique_ptr<ZmqContext> context(new ZmqContext(library));
  context->context_ = context->zmq_.ctx_new();
  if (context->context_ == nullptr) return context->failed("ZeroMQ cannot be started");
  return context;
}

ZmqContext::~ZmqContext() {
  for (void* const socket : sockets_) zmq_.close(socket);
  if (context_ != nullptr) zmq_.ctx_term(context_);  // waits until the addresses are free again
}

Status ZmqContext::failed(std::string_view what) const {
  return failed_precondition(fmt::format("{}: {}", what, zmq_.error_text(zmq_.error())));
}

Status ZmqContext::set(void* socket, int option, int value) const {
  return zmq_.setsockopt(socket, option, &value, sizeof value) == 0 ? ok_status() : failed("a socket's option");
}

Result<void*> ZmqContext::open(const std::string& endpoint, SocketOptions options) {
  void* const socket = zmq_.socket(context_, options.type);
  if (socket == nullptr) return failed("no socket can be made");
  sockets_.push_back(socket);
  TRY(set(socket, ZMQ_SNDHWM, static_cast<int>(options.waiting)));
  TRY(set(socket, ZMQ_LINGER, options.linger_ms));
  if (endpoint.find('[') != std::string::npos) TRY(set(socket, ZMQ_IPV6, 1));
  if (zmq_.setsockopt(socket, ZMQ_MAXMSGSIZE, &kLargestRequest, sizeof kLargestRequest) != 0)
    return failed("a socket's option");
  if (options.listens) {
    if (zmq_.bind(socket, endpoint.c_str()) != 0) return failed(fmt::format("cannot listen at {}", endpoint));
  } else if (zmq_.connect(socket, endpoint.c_str()) != 0) {
    return failed(fmt::format("cannot connect to {}", endpoint));
  }
  return socket;
}

bool ZmqContext::send(void* socket, std::initializer_list<std::string_view> frames) const {
  std::size_t left = frames.size();
  for (const std::string_view frame : frames) {
    const int more = --left > 0 ? ZMQ_SNDMORE : 0;
    if (zmq_.send(socket, frame.data(), frame.size(), ZMQ_DONTWAIT | more) < 0) return false;
  }
  return true;
}

}  // namespace tessera
