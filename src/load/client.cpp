#include "tessera/load/client.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <functional>
#include <optional>
#include <queue>
#include <utility>

#include "tessera/load/stream_record.h"
#include "tessera/model/hub/curl_url.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr long kConnectTimeoutS = 30;
constexpr std::size_t kMostRefusalBytes = 4096;

struct MultiFree {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
using Multi = std::unique_ptr<CURLM, MultiFree>;

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::size_t append(char* data, std::size_t, std::size_t size, void* user) {
  static_cast<std::string*>(user)->append(data, size);
  return size;
}

// Sets the options that every request of this client has.
void set_common(CURL* easy, const std::string& url, const std::string& ca_file, curl_slist* headers) {
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  if (!ca_file.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(easy, CURLOPT_PROXY, "");  // no proxy, because its delay would be measured too
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "tessera");
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, kConnectTimeoutS);
}

// One running request. CURLOPT_PRIVATE of its curl handle points to this object.
struct Transfer {
  CurlHandle easy{};
  std::size_t index = 0;
  std::string body{};
  std::optional<StreamRecord> stream{};
  std::string refusal{};      // body of an answer that is no stream
  Clock::time_point start{};  // start of the run
  std::array<char, CURL_ERROR_SIZE> error{};

  void prepare(std::size_t request, std::string request_body, RequestRecord& record, bool keep_ids,
               Clock::time_point run_start) {
    index = request;
    body = std::move(request_body);
    stream.emplace(record, keep_ids);
    refusal.clear();
    error[0] = '\0';
    start = run_start;
    curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDS, body.data());
    record.sent_s = seconds_now();
  }
  double seconds_now() const { return std::chrono::duration<double>(Clock::now() - start).count(); }
};

std::size_t on_body(char* data, std::size_t, std::size_t size, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  long status = 0;
  curl_easy_getinfo(transfer.easy.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status == 200) {
    transfer.stream->push({data, size}, transfer.seconds_now());
  } else if (transfer.refusal.size() < kMostRefusalBytes) {
    transfer.refusal.append(data, size);
  }
  return size;
}

// libcurl's transfers, driven by epoll, so that the cost of a wake-up does not grow with the number of streams.
class Transfers {
 public:
  Status start() {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0) return internal_error(fmt::format("epoll_create1: {}", std::strerror(errno)));
    multi_.reset(curl_multi_init());
    if (multi_ == nullptr)
      return internal_error(fmt::format("libcurl cannot be started: {}", curl_easy_strerror(CURLE_FAILED_INIT)));
    CURLM* multi = multi_.get();
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, this);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, this);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, 65536L);  // connections kept for later requests
    return ok_status();
  }
  ~Transfers() {
    multi_.reset();
    if (epoll_ >= 0) close(epoll_);
  }

  void add(CURL* easy) { curl_multi_add_handle(multi_.get(), easy); }

  // Waits until a transfer is ready, libcurl's timer expires, `until` is reached, or kLongestWait has passed. Then
  // advances the transfers that are ready.
  void step(Clock::time_point until) {
    if (timer_ <= Clock::now()) {
      timer_ = Clock::time_point::max();
      move(CURL_SOCKET_TIMEOUT, 0);
    }
    std::array<epoll_event, 256> events{};
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), milliseconds_to(until));
    for (int i = 0; i < count; ++i) {
      const std::uint32_t seen = events[static_cast<std::size_t>(i)].events;
      int mask = 0;
      if ((seen & EPOLLIN) != 0) mask |= CURL_CSELECT_IN;
      if ((seen & EPOLLOUT) != 0) mask |= CURL_CSELECT_OUT;
      if ((seen & (EPOLLERR | EPOLLHUP)) != 0) mask |= CURL_CSELECT_ERR;
      move(events[static_cast<std::size_t>(i)].data.fd, mask);
    }
  }

  // Removes and returns the next transfer that has ended, and sets `code` to its result. Returns null if there is none.
  CURL* take_ended(CURLcode& code) {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      CURL* easy = message->easy_handle;
      code = message->data.result;
      curl_multi_remove_handle(multi_.get(), easy);
      return easy;
    }
    return nullptr;
  }

 private:
  void move(curl_socket_t socket, int mask) {
    int running = 0;
    curl_multi_socket_action(multi_.get(), socket, mask, &running);
  }

  // Returns how long step() may wait. Rounds up, because the caller's loop would spin if a wait ended before `until`.
  int milliseconds_to(Clock::time_point until) const {
    const Clock::time_point end = std::min(until, timer_);
    const Clock::time_point now = Clock::now();
    if (end <= now) return 0;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::min<Clock::duration>(end - now, kLongestWait));
    return static_cast<int>(left.count());
  }

  static int on_socket(CURL*, curl_socket_t socket, int what, void* user, void* known) {
    const Transfers& self = *static_cast<Transfers*>(user);
    epoll_event event{};
    event.data.fd = socket;
    if (what == CURL_POLL_REMOVE) {
      epoll_ctl(self.epoll_, EPOLL_CTL_DEL, socket, &event);
      return 0;
    }
    if ((what & CURL_POLL_IN) != 0) event.events |= EPOLLIN;
    if ((what & CURL_POLL_OUT) != 0) event.events |= EPOLLOUT;
    epoll_ctl(self.epoll_, known == nullptr ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket, &event);
    curl_multi_assign(self.multi_.get(), socket, user);  // any non-null pointer marks the socket as known
    return 0;
  }

  static int on_timer(CURLM*, long wait_ms, void* user) {
    static_cast<Transfers*>(user)->timer_ =
        wait_ms < 0 ? Clock::time_point::max() : Clock::now() + std::chrono::milliseconds(wait_ms);
    return 0;
  }

  static constexpr std::chrono::seconds kLongestWait{1};
  Multi multi_;
  int epoll_ = -1;
  Clock::time_point timer_ = Clock::time_point::max();
};

}  // namespace

struct LoadClient::Impl {
  std::string url;
  std::string ca_file;
  CurlList headers;
  Transfers transfers;
  std::vector<std::unique_ptr<Transfer>> idle;

  // Returns an unused transfer. Handles are reused together with their connections.
  std::unique_ptr<Transfer> idle_transfer() {
    if (!idle.empty()) {
      std::unique_ptr<Transfer> transfer = std::move(idle.back());
      idle.pop_back();
      return transfer;
    }
    auto transfer = std::make_unique<Transfer>();
    transfer->easy.reset(curl_easy_init());
    CURL* easy = transfer->easy.get();
    if (easy == nullptr) return nullptr;
    set_common(easy, url + "/v1/completions", ca_file, headers.get());
    curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer.get());
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer.get());
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->error.data());
    return transfer;
  }
};

namespace {

// The requests that have not been sent, but whose sending time is known. The earliest request comes first.
class Waiting {
 public:
  // Adds the requests that wait for no other request.
  Waiting(const ClientLoad& load, Clock::time_point start) : load_(load), followers_(load.send_at_s.size()) {
    for (std::size_t i = 0; i < load.send_at_s.size(); ++i) {
      if (load.after.empty() || load.after[i] < 0) {
        add(i, start);
      } else {
        followers_[static_cast<std::size_t>(load.after[i])].push_back(i);
      }
    }
  }
  // Adds the requests that waited for the end of `request`.
  void end(std::size_t request, Clock::time_point now) {
    for (const std::size_t follower : followers_[request]) add(follower, now);
  }
  bool empty() const { return queue_.empty(); }
  Clock::time_point next_time() const { return queue_.top().first; }
  std::size_t take() {
    const std::size_t request = queue_.top().second;
    queue_.pop();
    return request;
  }

 private:
  using Entry = std::pair<Clock::time_point, std::size_t>;  // requests with equal times are sent in the load's order

  void add(std::size_t i, Clock::time_point from) {
    const std::chrono::duration<double> wait(load_.send_at_s[i]);
    queue_.emplace(from + std::chrono::duration_cast<Clock::duration>(wait), i);
  }

  const ClientLoad& load_;
  std::vector<std::vector<std::size_t>> followers_;  // [requests]: the requests that wait for the end of each request
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

// Returns the reason why a finished transfer failed; "" if it succeeded.
std::string failure_of(const Transfer& transfer, CURLcode code) {
  if (code != CURLE_OK) return transfer.error[0] != '\0' ? transfer.error.data() : curl_easy_strerror(code);
  long status = 0;
  curl_easy_getinfo(transfer.easy.get(), CURLINFO_RESPONSE_CODE, &status);
  return status == 200 ? "" : fmt::format("{}: {}", status, error_message(transfer.refusal));
}

}  // namespace

LoadClient::LoadClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LoadClient::~LoadClient() = default;

Result<std::unique_ptr<LoadClient>> LoadClient::create(std::string url, const std::string& api_key,
                                                       std::string ca_file) {
  while (url.ends_with('/')) url.pop_back();
  if (url.ends_with("/v1")) url.resize(url.size() - 3);
  if (!url.starts_with("http://") && !url.starts_with("https://"))
    return invalid_argument(fmt::format("\"{}\" is not accepted; http://host:port and https://host:port are", url));
  auto impl = std::make_unique<Impl>();
  impl->url = std::move(url);
  impl->ca_file = std::move(ca_file);
  curl_slist* headers = curl_slist_append(nullptr, "Content-Type: application/json");
  // Removes the header "Expect". With it, libcurl would wait for the server's consent before it sends a long prompt.
  headers = curl_slist_append(headers, "Expect:");
  if (!api_key.empty()) headers = curl_slist_append(headers, ("Authorization: Bearer " + api_key).c_str());
  impl->headers.reset(headers);
  TRY(impl->transfers.start());
  return std::unique_ptr<LoadClient>(new LoadClient(std::move(impl)));
}

Result<Json> LoadClient::get(const std::string& path) {
  const CurlHandle easy(curl_easy_init());
  if (easy == nullptr)
    return internal_error(fmt::format("libcurl cannot be started: {}", curl_easy_strerror(CURLE_FAILED_INIT)));
  const std::string address = impl_->url + path;
  std::string body;
  set_common(easy.get(), address, impl_->ca_file, impl_->headers.get());
  curl_easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, append);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &body);
  const CURLcode code = curl_easy_perform(easy.get());
  if (code != CURLE_OK) return not_found(fmt::format("{}: {}", address, curl_easy_strerror(code)));
  long status = 0;
  curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) return not_found(fmt::format("{}: {}: {}", address, status, error_message(body)));
  return Json::parse(body, address);
}

Result<ClientRun> LoadClient::run(const ClientLoad& load) {
  const std::size_t count = load.send_at_s.size();
  const std::size_t most = load.max_concurrency > 0 ? static_cast<std::size_t>(load.max_concurrency) : count;
  ClientRun run{.records = std::vector<RequestRecord>(count)};
  const Clock::time_point start = Clock::now();
  const double cpu_before = thread_cpu_seconds();
  Waiting waiting(load, start);
  std::vector<std::unique_ptr<Transfer>> under_way(count);
  std::size_t active = 0;
  for (std::size_t ended = 0; ended < count;) {
    // Starts only one request per round, which step() then sends. If a round started two requests, the first would be
    // sent only after the body of the second was made.
    if (!waiting.empty() && active < most && waiting.next_time() <= Clock::now()) {
      std::unique_ptr<Transfer> transfer = impl_->idle_transfer();
      if (transfer == nullptr) return resource_exhausted("no memory for libcurl");
      const std::size_t next = waiting.take();
      transfer->prepare(next, load.body(next, run.records), run.records[next], load.keep_ids, start);
      impl_->transfers.add(transfer->easy.get());
      under_way[next] = std::move(transfer);
      ++active;
    }
    const bool may_send = !waiting.empty() && active < most;
    impl_->transfers.step(may_send ? waiting.next_time() : Clock::time_point::max());
    CURLcode code = CURLE_OK;
    while (CURL* easy = impl_->transfers.take_ended(code)) {
      Transfer* transfer = nullptr;
      curl_easy_getinfo(easy, CURLINFO_PRIVATE, &transfer);
      RequestRecord& record = run.records[transfer->index];
      if (std::string failure = failure_of(*transfer, code); !failure.empty()) {
        record.failure = std::move(failure);
      } else {
        transfer->stream->end();
      }
      waiting.end(transfer->index, Clock::now());
      if (load.on_end) load.on_end(transfer->index);
      impl_->idle.push_back(std::move(under_way[transfer->index]));
      ++ended;
      --active;
    }
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (seconds > 0) run.cpu_share = (thread_cpu_seconds() - cpu_before) / seconds;
  return run;
}

}  // namespace tessera
