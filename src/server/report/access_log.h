// The access log: one line of JSON for each HTTP request, without API keys and without the content of messages.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/server/http/http.h"

namespace tessera {

// Returns the request's line, with its line break. `time`: when the answer ended. `model`: the name of the model.
// Leaves out members whose values are unknown. "model" and the members after it are present only if the model ran.
// Clips long texts that come from the client.
std::string access_line(const FinishedRequest& finished, std::string_view time, std::string_view model);

// Writes lines to the end of a file.
//
// Threads: one thread at a time may use an object.
class AccessLog {
 public:
  // Opens the file, pipe or device at `path`, or standard error for "-". Creates a missing file. `model` is the name of
  // the model. Errors name the path and the reason.
  static Result<std::unique_ptr<AccessLog>> open(const std::string& path, std::string model);
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;
  ~AccessLog();

  // Writes the request's line with one system call. Never waits for the reader of a pipe. A line that cannot be written
  // is lost. The server's log reports the first lost line, and again the first lost line after each reopen().
  void write(const FinishedRequest& finished);

  // Opens the file at the path again, after a rotation has moved the old file away. Does nothing for standard error. If
  // the file cannot be opened, reports this failure in the server's log and continues with the old file.
  void reopen();

 private:
  AccessLog(int file, bool owned, std::string path, std::string model)
      : file_(file), owned_(owned), path_(std::move(path)), model_(std::move(model)) {}

  int file_;
  bool owned_;
  std::string path_;
  std::string model_;
  bool cut_ = false;       // the file ends within a line
  bool reported_ = false;  // a failure was reported
};

}  // namespace tessera
