#include "tessera/model/hub/hub_blob.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/base/log.h"
#include "tessera/base/open_file.h"
#include "tessera/base/parsed_number.h"
#include "tessera/base/write_file.h"
#include "tessera/model/hub/hub_digest.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxAttempts = 5;
constexpr std::int64_t kMaxRetryDelayMs = 60'000;

// Returns `text` as a number. Returns -1 if `text` as a whole is not a number of at least 0.
std::int64_t number_in(std::string_view text) {
  return std::max<std::int64_t>(parsed_number<std::int64_t>(text).value_or(-1), -1);
}

// Returns the first position in a Content-Range header, which is 100 in "bytes 100-999/1000". Returns -1 if the header
// is missing or has another form.
std::int64_t range_start(const HttpReply& reply) {
  const std::string* range = reply.header("content-range");
  constexpr std::string_view kUnit = "bytes ";
  if (range == nullptr || !range->starts_with(kUnit)) return -1;
  return number_in(std::string_view(*range).substr(kUnit.size(), range->find('-') - kUnit.size()));
}

Result<Digest> start_digest(const HubFile& file) {
  return file.is_lfs ? Digest::sha256() : Digest::git_blob(file.size);
}

// A partially downloaded file, and the digest of its bytes so far.
class Partial {
 public:
  // Continues with the bytes that `path` already holds.
  static Result<Partial> open(const fs::path& path, const HubFile& file) {
    OpenFile content = TRY(OpenFile::open(path));
    Digest digest = TRY(start_digest(file));
    Partial partial(std::move(content), std::move(digest), file);
    TRY(partial.read_what_is_there());
    return partial;
  }

  std::int64_t size() const { return size_; }
  bool complete() const { return size_ == file_.size; }

  Status restart() {
    digest_ = TRY(start_digest(file_));
    size_ = 0;
    return content_.truncate(0);
  }

  Status append(std::string_view bytes) {
    if (static_cast<std::int64_t>(bytes.size()) > file_.size - size_)
      return data_loss(fmt::format("{}: the server sends more than its {} bytes", file_.name, file_.size));
    TRY(content_.write(bytes));
    digest_.add(bytes);
    size_ += static_cast<std::int64_t>(bytes.size());
    return ok_status();
  }

  // Flushes the file to disk, and returns the digest of its bytes. Precondition: complete().
  Result<std::string> finish() {
    TRY(content_.sync());
    return digest_.finish();
  }

 private:
  Partial(OpenFile content, Digest digest, const HubFile& file)
      : content_(std::move(content)), digest_(std::move(digest)), file_(file) {}

  Status read_what_is_there() {
    const std::int64_t there = TRY(content_.size());
    if (there > file_.size) return restart();
    std::vector<char> buffer(1 << 20);
    for (;;) {
      const std::int64_t got = TRY(content_.read(buffer.data(), buffer.size()));
      if (got == 0) return ok_status();
      digest_.add({buffer.data(), static_cast<std::size_t>(got)});
      size_ += got;
    }
  }

  OpenFile content_;
  Digest digest_;
  const HubFile& file_;
  std::int64_t size_ = 0;
};

// Appends the body of one response to `partial`.
Result<HttpReply> fetch_rest(HttpClient& client, const BlobRequest& request, Partial& partial) {
  const auto begin = [&](const HttpReply& reply) -> Status {
    if (reply.status == 206 && range_start(reply) == partial.size()) return ok_status();
    if (reply.status == 206) {
      return data_loss(fmt::format("{}: the server sends other bytes than the requested ones, from {} on",
                                   request.file.name, partial.size()));
    }
    return partial.restart();  // the server is sending the whole file instead of the requested range
  };
  const auto write = [&](std::string_view bytes) -> Status {
    TRY(partial.append(bytes));
    request.on_progress(partial.size());
    return ok_status();
  };
  HttpReply reply = TRY(client.get(request.url, partial.size(), {.begin = begin, .write = write}));
  if (reply.status == 416) {  // the partial file is longer than the file itself
    TRY(partial.restart());
    reply.broken = "the server has no such range";
  }
  if (reply.succeeded() && !partial.complete())
    reply.broken = fmt::format("the answer ended after {} of {} bytes", partial.size(), request.file.size);
  return reply;
}

Status fetch_all(HttpClient& client, const BlobRequest& request, Partial& partial,
                 const std::function<Status(const HttpReply&)>& refused) {
  if (partial.complete()) return ok_status();
  const HttpReply reply = TRY(with_retries(
      request.file.name, request.retry_delay_ms, [&] { return fetch_rest(client, request, partial); },
      [&] { return partial.size(); }));
  if (reply.succeeded()) return ok_status();
  return refused(reply).with_context(request.file.name);
}

void say_waiting(const fs::path& lock) {
  log_warn("hub", "waiting for another process that fetches the same file (lock {})", lock.string());
}

}  // namespace

Result<HttpReply> with_retries(const std::string& what, std::int64_t delay_ms,
                               const std::function<Result<HttpReply>()>& attempt,
                               const std::function<std::int64_t()>& progress) {
  std::int64_t delay = delay_ms;
  for (int attempts = 1;; ++attempts) {
    const std::int64_t before = progress();
    HttpReply reply = TRY(attempt());
    if (progress() > before) {
      attempts = 1;
      delay = delay_ms;
    }
    if (!reply.is_temporary() || attempts == kMaxAttempts) return reply;
    const std::string* asked = reply.header("retry-after");
    const std::int64_t seconds = asked == nullptr ? -1 : number_in(*asked);
    const std::int64_t wait =
        std::min(seconds >= 0 ? 1000 * std::min(seconds, kMaxRetryDelayMs) : delay, kMaxRetryDelayMs);
    log_warn("hub", "{}: {}; trying again in {:.1f} s", what,
             reply.broken.empty() ? fmt::format("HTTP status {}", reply.status) : reply.broken,
             static_cast<double>(wait) / 1000);
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    delay *= 2;
  }
}

bool has_blob(const HubFolder& folder, const HubFile& file) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(folder.blob(file.digest), error);
  return !error && size == static_cast<std::uintmax_t>(file.size);
}

Status fetch_blob(HttpClient& client, const BlobRequest& request,
                  const std::function<Status(const HttpReply&)>& refused) {
  const HubFile& file = request.file;
  const fs::path blob = request.folder.blob(file.digest);
  const fs::path lock_path = request.folder.lock(file.digest);
  TRY(make_folder(blob.parent_path()));
  TRY(make_folder(lock_path.parent_path()));
  OpenFile lock = TRY(OpenFile::open(lock_path));
  TRY(lock.lock(say_waiting));
  if (has_blob(request.folder, file)) return ok_status();

  const fs::path incomplete = blob.string() + ".incomplete";
  Partial partial = TRY(Partial::open(incomplete, file));
  const bool resumed = partial.size() > 0;
  request.on_progress(partial.size());
  TRY(fetch_all(client, request, partial, refused));
  std::string digest = TRY(partial.finish());
  if (digest != file.digest && resumed) {  // the bytes from the earlier download may be wrong
    TRY(partial.restart());
    TRY(fetch_all(client, request, partial, refused));
    digest = TRY(partial.finish());
  }
  if (digest != file.digest) {
    TRY(partial.restart());
    return data_loss(fmt::format("{}: the download differs from the hub's listing: its {} is {} instead of {}",
                                 file.name, file.is_lfs ? "SHA-256" : "SHA-1", digest, file.digest));
  }
  return rename_file(incomplete, blob);
}

}  // namespace tessera
