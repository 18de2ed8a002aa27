#include "tessera/server/trace/span_exporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tessera/base/json_fields.h"
#include "tessera/base/log.h"
#include "tessera/model/hub/curl_url.h"
#include "tessera/server/metrics/metric_families.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kGather{1};      // the longest wait for a batch to fill
constexpr std::chrono::seconds kFarewell{2};    // time for sending the waiting spans when the exporter ends
constexpr std::chrono::seconds kFirstPause{1};  // the pause after the first attempt; it doubles with each attempt
constexpr int kTries = 5;
constexpr long kTimeoutMs = 10'000;

std::size_t ignore_body(char*, std::size_t, std::size_t size, void*) { return size; }

}  // namespace

// A connection to the collector, kept open between batches.
class SpanExporter::Connection {
 public:
  explicit Connection(const SpanExporter& exporter) : exporter_(exporter), curl_(curl_easy_init()) {
    add_header("Content-Type: application/json");
    for (const auto& [name, value] : exporter.options_.headers) add_header(fmt::format("{}: {}", name, value));
  }

  // Sends a body. Sets `why` unless the collector accepted the body.
  Outcome post(const std::string& body, std::string& why) {
    if (curl_ == nullptr) {
      why = "libcurl cannot be started";
      return Outcome::kTryAgain;
    }
    CURL* const curl = curl_.get();
    curl_easy_setopt(curl, CURLOPT_URL, exporter_.url_.c_str());
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "tessera");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, kTimeoutMs);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers_.get());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.c_str());
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore_body);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, is_over);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &exporter_);
    if (const CURLcode code = curl_easy_perform(curl); code != CURLE_OK) {
      why = curl_easy_strerror(code);
      return Outcome::kTryAgain;
    }
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 200 && status < 300) return Outcome::kSent;
    why = fmt::format("the collector answered with status {}", status);
    const bool for_now = status == 429 || status == 502 || status == 503 || status == 504;
    return for_now ? Outcome::kTryAgain : Outcome::kRefused;
  }

 private:
  // Returns 1, which aborts the transfer, once the time `end_` has passed. libcurl calls this function about once a
  // second, and more often while data moves.
  static int is_over(void* exporter, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return Clock::now() >= static_cast<const SpanExporter*>(exporter)->end_.load() ? 1 : 0;
  }
  void add_header(const std::string& line) {
    curl_slist* const longer = curl_slist_append(headers_.get(), line.c_str());
    if (longer == nullptr) return;
    (void)headers_.release();
    headers_.reset(longer);
  }

  const SpanExporter& exporter_;
  CurlHandle curl_;
  CurlList headers_;
};

Result<std::string> trace_url(const std::string& endpoint) {
  const CurlUrl url = parse_url(endpoint);
  const std::string scheme = part_of(url, CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https")
    return invalid_argument(
        fmt::format("\"{}\" is not accepted; accepted is the URL of a collector that takes OTLP "
                    "over HTTP, such as http://localhost:4318/v1/traces",
                    clip_text(endpoint)));
  const std::string path = part_of(url, CURLUPART_PATH);
  if (!path.empty() && path != "/") return endpoint;
  return endpoint.substr(0, endpoint.size() - (endpoint.ends_with('/') ? 1 : 0)) + "/v1/traces";
}

Result<std::unique_ptr<SpanExporter>> SpanExporter::create(TraceOptions options, std::string model) {
  std::string url = TRY(trace_url(options.endpoint));
  if (const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK)
    return internal_error(fmt::format("libcurl cannot be started: {}", curl_easy_strerror(code)));
  return std::unique_ptr<SpanExporter>(new SpanExporter(std::move(options), std::move(url), std::move(model)));
}

SpanExporter::SpanExporter(TraceOptions options, std::string url, std::string model)
    : options_(std::move(options)), url_(std::move(url)), model_(std::move(model)), thread_([this] { work(); }) {}

SpanExporter::~SpanExporter() {
  end_ = Clock::now() + kFarewell;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void SpanExporter::add(TraceSpan span) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMostWaiting) {
      ++dropped_;
      return;
    }
    first = waiting_.empty();
    waiting_.push_back(std::move(span));
    first = first || waiting_.size() == kMostSent;
  }
  if (first) wake_.notify_one();
}

std::vector<TraceSpan> SpanExporter::next() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
  wake_.wait_for(lock, kGather, [this] { return ending_ || waiting_.size() >= kMostSent; });
  const std::size_t count = std::min(waiting_.size(), kMostSent);
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<TraceSpan> spans(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  return spans;
}

void SpanExporter::work() {
  Connection connection(*this);
  for (std::vector<TraceSpan> spans = next(); !spans.empty(); spans = next()) {
    try {
      deliver(connection, spans);
    } catch (const std::exception& e) {  // usually std::bad_alloc
      dropped_ += std::ssize(spans);
      warn(e.what(), spans.size());
    }
  }
}

void SpanExporter::deliver(Connection& connection, const std::vector<TraceSpan>& spans) {
  const std::string body = spans_json(spans, options_.service, model_);
  std::string why;
  Clock::duration wait = kFirstPause;
  for (int tries = 1;; ++tries, wait *= 2) {
    const Outcome outcome = connection.post(body, why);
    if (outcome == Outcome::kSent) {
      sent_ += std::ssize(spans);
      if (std::exchange(warned_, false)) log_info("server", "traces reach {} again", url_);
      return;
    }
    if (outcome == Outcome::kRefused || tries == kTries || !pause(wait)) break;
  }
  dropped_ += std::ssize(spans);
  warn(why, spans.size());
}

bool SpanExporter::pause(Clock::duration time) {
  std::unique_lock lock(mutex_);
  const Clock::time_point until = std::min(Clock::now() + time, end_.load());
  wake_.wait_until(lock, until, [this] { return ending_; });
  return !ending_;
}

void SpanExporter::warn(const std::string& why, std::size_t spans) {
  if (std::exchange(warned_, true)) return;
  log_warn("server",
           "{} spans of traces were lost, and more may be lost: {}: {}; the collector must accept OTLP over HTTP",
           spans, url_, why);
}

std::string trace_metrics(const SpanExporter& exporter) {
  MetricFamilies families;
  families.counters("tessera:trace_spans_total", "Spans of traces that were sent, or dropped.",
                    {{{{"outcome", "sent"}}, static_cast<double>(exporter.sent())},
                     {{{"outcome", "dropped"}}, static_cast<double>(exporter.dropped())}});
  return families.text();
}

}  // namespace tessera
