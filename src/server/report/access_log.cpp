#include "tessera/server/report/access_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/base/open_file.h"
#include "tessera/server/api_job.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

constexpr std::size_t kMostPathBytes = 1024;
constexpr std::size_t kMostAgentBytes = 256;

// Returns the beginning of a client's text. It has at most `most` bytes and ends between two characters.
std::string clipped(std::string_view text, std::size_t most) {
  std::string_view kept = text.substr(0, most);
  if (kept.size() < text.size()) kept = kept.substr(0, complete_utf8_prefix(kept));
  return replace_invalid_utf8(kept);
}

// Opens the file for appending. Returns its descriptor, or -1 with errno. The file may be a pipe. O_NONBLOCK prevents a
// write to a full pipe from blocking the server.
int open_to_append(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
}

void write_generation(JsonWriter& json, const GenerationFacts& generation, std::string_view model) {
  if (generation.id.empty()) return;
  json.key("model").value(model).key("request_id").value(generation.id);
  if (generation.tokens) {
    json.key("prompt_tokens").value(generation.tokens->prompt);
    json.key("cached_tokens").value(generation.tokens->cached);
    json.key("completion_tokens").value(generation.tokens->completion);
  }
  if (!generation.finish.empty()) json.key("finish_reason").value(generation.finish);
}

}  // namespace

std::string access_line(const FinishedRequest& finished, std::string_view time, std::string_view model) {
  const auto add = [](JsonWriter& json, std::string_view name, std::string_view text, std::size_t most) {
    if (!text.empty()) json.key(name).value(clipped(text, most));
  };
  JsonWriter json;
  json.object().key("time").value(time);
  add(json, "client", finished.address, kMostAgentBytes);
  add(json, "method", finished.method, kMostAgentBytes);
  add(json, "path", finished.path, kMostPathBytes);
  json.key("status").value(finished.status).key("complete").value(finished.complete);
  json.key("bytes_in").value(finished.bytes_in).key("bytes_out").value(finished.bytes_out);
  json.key("duration_ms").value(std::round(finished.seconds * 1e6) / 1e3);
  add(json, "user_agent", finished.user_agent, kMostAgentBytes);
  write_generation(json, finished.generation, model);
  json.end_object();
  return json.take() + "\n";
}

Result<std::unique_ptr<AccessLog>> AccessLog::open(const std::string& path, std::string model) {
  const bool is_error_output = path == "-";
  const int file = is_error_output ? STDERR_FILENO : open_to_append(path);
  if (file < 0) return file_error("open", path);
  return std::unique_ptr<AccessLog>(
      new AccessLog(file, !is_error_output, is_error_output ? "standard error" : path, std::move(model)));
}

AccessLog::~AccessLog() {
  if (owned_) ::close(file_);
}

void AccessLog::reopen() {
  if (!owned_) return;
  const int file = open_to_append(path_);
  if (file < 0)
    return log_error("server", "the access log stays in the file that was open: {}",
                     file_error("open", path_).message());
  ::close(std::exchange(file_, file));
  cut_ = false;
  reported_ = false;
}

void AccessLog::write(const FinishedRequest& finished) {
  std::string line = access_line(finished, iso_time(), model_);
  if (cut_) line.insert(0, "\n");
  ssize_t written = 0;
  do {
    written = ::write(file_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (std::cmp_equal(written, line.size())) {
    cut_ = false;
    return;
  }
  const std::string reason = written < 0 ? std::strerror(errno) : "there is no room for a whole line";
  if (written > 0) cut_ = true;
  if (std::exchange(reported_, true)) return;
  log_error("server", "a line of the access log was lost, and more lines may be lost: cannot write to {}: {}", path_,
            reason);
}

}  // namespace tessera
