#include "tessera/server/events/event_sockets.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <span>

#include "tessera/server/events/event_message.h"
#include "tessera/server/events/zmq_library.h"

namespace tessera {
namespace {

constexpr int kLingerMs = 500;
constexpr std::int64_t kLargestRequest = 1024;  // bytes; a valid request has 8
constexpr std::size_t kNumberBytes = 8;

}  // namespace

struct EventSockets::Impl {
  explicit Impl(const ZmqLibrary& library) : zmq(library) {}
  ~Impl() {
    for (void* const socket : {events, replays})
      if (socket != nullptr) zmq.close(socket);
    if (context != nullptr) zmq.ctx_term(context);  // waits until the addresses are free again
    if (wakes >= 0) close(wakes);
  }

  Status start() {
    wakes = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wakes < 0) return resource_exhausted(fmt::format("no event descriptor can be made: {}", strerror(errno)));
    context = zmq.ctx_new();
    return context != nullptr ? ok_status() : failed("ZeroMQ cannot be started");
  }
  Status failed(std::string_view what) const {
    return failed_precondition(fmt::format("{}: {}", what, zmq.error_text(zmq.error())));
  }
  Status set(void* socket, int option, int value) const {
    return zmq.setsockopt(socket, option, &value, sizeof value) == 0 ? ok_status() : failed("a socket's option");
  }

  // Opens a socket that keeps up to `waiting` messages for each peer.
  Status open(int type, const std::string& endpoint, bool listens, std::int64_t waiting, void*& socket) {
    socket = zmq.socket(context, type);
    if (socket == nullptr) return failed("no socket can be made");
    TRY(set(socket, ZMQ_SNDHWM, static_cast<int>(waiting)));
    TRY(set(socket, ZMQ_LINGER, kLingerMs));
    if (endpoint.find('[') != std::string::npos) TRY(set(socket, ZMQ_IPV6, 1));
    const std::int64_t most = kLargestRequest;
    if (zmq.setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof most) != 0) return failed("a socket's option");
    if (listens) {
      if (zmq.bind(socket, endpoint.c_str()) != 0) return failed(fmt::format("cannot listen at {}", endpoint));
    } else if (zmq.connect(socket, endpoint.c_str()) != 0) {
      return failed(fmt::format("cannot connect to {}", endpoint));
    }
    return ok_status();
  }

  // Sends a message of several frames without waiting.
  bool send(void* socket, std::initializer_list<std::string_view> frames) const {
    std::size_t left = frames.size();
    for (const std::string_view frame : frames) {
      const int more = --left > 0 ? ZMQ_SNDMORE : 0;
      if (zmq.send(socket, frame.data(), frame.size(), ZMQ_DONTWAIT | more) < 0) return false;
    }
    return true;
  }

  const ZmqLibrary zmq;
  std::string topic;
  void* context = nullptr;
  void* events = nullptr;
  void* replays = nullptr;  // null: nothing is replayed
  int wakes = -1;           // an eventfd
};

Result<std::unique_ptr<EventSockets>> EventSockets::open(const KvEventsOptions& options, int rank) {
  auto impl = std::make_unique<Impl>(TRY(ZmqLibrary::open()));
  TRY(impl->start());
  impl->topic = options.topic;
  const std::string endpoint = endpoint_of(options.endpoint, rank);
  TRY(impl->open(ZMQ_PUB, endpoint, options.listens(), options.hwm, impl->events).with_context("\"endpoint\""));
  if (!options.replay_endpoint.empty()) {
    // A replay is sent without waiting for the client, so the socket must have room for all of its messages: up to
    // `buffer_steps` batches and the mark of the end.
    TRY(impl->open(ZMQ_ROUTER, endpoint_of(options.replay_endpoint, rank), true, options.buffer_steps + 1,
                   impl->replays)
            .with_context("\"replay_endpoint\""));
  }
  return std::unique_ptr<EventSockets>(new EventSockets(std::move(impl)));
}

EventSockets::EventSockets(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EventSockets::~EventSockets() = default;

bool EventSockets::publish(std::uint64_t number, std::string_view message) {
  return impl_->send(impl_->events, {impl_->topic, number_bytes(number), message});
}

// A request has three frames. The first is the client's name, which the socket adds. The second is empty. The third is
// the number of a batch.
std::optional<EventSockets::Request> EventSockets::next_request() {
  if (impl_->replays == nullptr) return std::nullopt;
  std::array<char, kLargestRequest> frame{};
  for (;;) {
    Request request;
    bool valid = true;
    int more = 1;
    for (int count = 0; more != 0; ++count) {
      const int size = impl_->zmq.recv(impl_->replays, frame.data(), frame.size(), ZMQ_DONTWAIT);
      if (size < 0) return std::nullopt;
      const std::string_view bytes(frame.data(), std::min(static_cast<std::size_t>(size), frame.size()));
      std::size_t length = sizeof more;
      if (impl_->zmq.getsockopt(impl_->replays, ZMQ_RCVMORE, &more, &length) != 0) return std::nullopt;
      if (count == 0) request.client = bytes;
      if (count == 1) valid = bytes.empty() && more != 0;
      if (count == 2) {
        valid = valid && bytes.size() == kNumberBytes && more == 0;
        for (const char byte : bytes) request.first = request.first << 8 | static_cast<unsigned char>(byte);
      }
    }
    if (valid) return request;
  }
}

void EventSockets::replay(const Request& request, std::uint64_t number, std::string_view message) {
  (void)impl_->send(impl_->replays, {request.client, "", impl_->topic, number_bytes(number), message});
}

void EventSockets::end_replay(const Request& request) {
  (void)impl_->send(impl_->replays, {request.client, "", "", number_bytes(UINT64_MAX), ""});
}

void EventSockets::wait() {
  std::array<zmq_pollitem_t, 2> items{};
  items[0].fd = impl_->wakes;
  items[0].events = ZMQ_POLLIN;
  items[1].socket = impl_->replays;
  items[1].events = ZMQ_POLLIN;
  impl_->zmq.poll(items.data(), impl_->replays == nullptr ? 1 : 2, -1);
  std::uint64_t count = 0;
  (void)!read(impl_->wakes, &count, sizeof count);
}

void EventSockets::wake() {
  const std::uint64_t one = 1;
  (void)!write(impl_->wakes, &one, sizeof one);
}

}  // namespace tessera
