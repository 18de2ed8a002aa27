// The answers of a running batch: a file for those of status 200 and one for all others, a line each. Both are read
// again when the server starts anew, so that no request that has an answer runs twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "tessera/base/open_file.h"
#include "tessera/base/status.h"
#include "tessera/server/batches/file_store.h"

namespace tessera {

// Threads: one at a time.
class BatchAnswers {
 public:
  // Opens the files of a batch, or creates them, and cuts off a line that a killed process left unfinished. The room
  // for their bytes is taken from `store`, which outlives the object. Errors: the files cannot be read, or there is no
  // room.
  static Result<std::unique_ptr<BatchAnswers>> open(std::filesystem::path output, std::filesystem::path errors,
                                                    FileStore& store);
  // Returns to the store the room of files that were not kept.
  ~BatchAnswers();
  BatchAnswers(const BatchAnswers&) = delete;
  BatchAnswers& operator=(const BatchAnswers&) = delete;

  // Returns whether a request has its answer.
  bool has(const std::string& custom_id) const { return done_.contains(custom_id); }
  std::int64_t completed() const { return completed_; }
  std::int64_t failed() const { return failed_; }

  // Adds the answer of a request; `line` has its line break. Errors: there is no room, or the disk is full.
  Status add(const std::string& custom_id, std::string_view line, bool completed);

  // Moves the answers into files of the store, which have the owner and the age of `like` and names that begin with
  // `name`. Sets the ids of the files; where there are no lines, there is no file and no id. Call it last, and once.
  ApiStatus keep(const StoredFile& like, std::string_view name, std::string& output_id, std::string& error_id);

 private:
  struct Part {
    std::filesystem::path path;
    OpenFile file;
    std::int64_t bytes = 0;  // on the disk and taken from the store
  };
  BatchAnswers(Part output, Part errors, FileStore& store)
      : output_(std::move(output)), errors_(std::move(errors)), store_(store) {}
  // Reads the lines of a file and cuts it behind the last whole one. Returns their number.
  Result<std::int64_t> load(Part& part);
  ApiStatus keep(Part& part, StoredFile file, std::string& id);

  Part output_;
  Part errors_;
  FileStore& store_;
  std::int64_t completed_ = 0;
  std::int64_t failed_ = 0;
  std::unordered_set<std::string> done_{};
};

}  // namespace tessera
