// Stores the answers of a running batch in two files, one line per answer. One file has the answers of status 200, and
// the other file has all other answers. A restarted server reads both files, so that no request with an answer runs
// twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "tessera/base/open_file.h"
#include "tessera/base/status.h"
#include "tessera/server/batches/file_store.h"
#include "tessera/server/fields/usage.h"

namespace tessera {

// Threads: one thread at a time may use an object.
class BatchAnswers {
 public:
  // Opens or creates the files of a batch. Cuts off a line that a killed process left unfinished. Reserves the files'
  // bytes in `store`, which outlives the object. Errors: the files cannot be read, or the store has no room.
  static Result<std::unique_ptr<BatchAnswers>> open(std::filesystem::path output, std::filesystem::path errors,
                                                    FileStore& store);
  // Releases the bytes in the store that were reserved for files which keep() did not move there.
  ~BatchAnswers();
  BatchAnswers(const BatchAnswers&) = delete;
  BatchAnswers& operator=(const BatchAnswers&) = delete;

  // Returns whether a request has an answer.
  bool has(const std::string& custom_id) const { return done_.contains(custom_id); }
  std::int64_t completed() const { return completed_; }
  std::int64_t failed() const { return failed_; }
  // Returns the token counts of the answers of status 200.
  const Usage& usage() const { return usage_; }

  // Adds the answer of a request. `line` ends with its line break. `usage` has the token counts of an answer of status
  // 200, and is empty for any other answer. Errors: the store has no room, or the disk is full.
  Status add(const std::string& custom_id, std::string_view line, const std::optional<Usage>& usage);

  // Moves the answer files into the store. The stored files have the same owner and time of expiry as `like`, and their
  // names begin with `name`. Sets `output_id` and `error_id` to the ids of the stored files. A file without lines is
  // not stored, and the argument for its id stays unchanged. Call keep() last, and only once.
  ApiStatus keep(const StoredFile& like, std::string_view name, std::string& output_id, std::string& error_id);

 private:
  struct Part {
    std::filesystem::path path;
    OpenFile file;
    std::int64_t bytes = 0;  // size of the file, reserved in the store
  };
  BatchAnswers(Part output, Part errors, FileStore& store)
      : output_(std::move(output)), errors_(std::move(errors)), store_(store) {}
  // Reads the answers in a file. Cuts the file before the first line that is damaged or unfinished, so that the
  // requests of the lost lines run again. Returns the number of lines that remain.
  Result<std::int64_t> load(Part& part);
  ApiStatus keep(Part& part, StoredFile file, std::string& id);

  Part output_;
  Part errors_;
  FileStore& store_;
  std::int64_t completed_ = 0;
  std::int64_t failed_ = 0;
  Usage usage_{};
  std::unordered_set<std::string> done_{};
};

}  // namespace tessera
