// Stores files in a folder: the uploads of clients, and the answers of batches. The store is bounded by bytes, number
// and age.
//
//   FileStore store = TRY(FileStore::open(folder.files(), {.bytes = 1 << 30}));
//   const StoredFile file = TRY(store.put({.owner = owner, .filename = "a.jsonl", .purpose = "batch"}, content));
//   std::ifstream input(store.path_of(file.id));
//
// Only the owner of a file can find it. For all other clients the file's id is unknown. An expired file is erased when
// its owner asks for it, when any client lists files, or when room is needed. Files survive the process.
//
// Threads: any thread may call every function. put() and adopt() wait for the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/server/api_result.h"

namespace tessera {

struct StoredFile {
  std::string id{};     // "file-…"; set by put() and adopt()
  std::string owner{};  // owner_of() of the client that may read the file
  std::string filename{};
  std::string purpose{};  // "batch" or "batch_output"
  std::int64_t bytes = 0;
  std::int64_t created_at = 0;  // Unix time
  std::int64_t expires_at = 0;  // Unix time

  // Returns OpenAI's file object.
  Json to_json() const;
};

class FileStore {
 public:
  struct Limits {
    std::int64_t bytes = std::int64_t{16} << 30;  // the maximum number of bytes of all files together
    std::size_t number = 10'000;                  // the maximum number of files
  };
  using Clock = std::function<std::int64_t()>;  // Unix time

  // Reads the descriptions in the folder. Removes files that a killed process left unfinished. `clock` is for tests. If
  // it is empty, unix_time() is used.
  static Result<std::unique_ptr<FileStore>> open(std::filesystem::path folder, Limits limits, Clock clock = {});

  // Makes `owner` the owner of all files whose owner is "", and writes this to the disk. Does nothing if `owner` is "".
  // Call it before other threads use the store. Error: the disk fails.
  Status give_unnamed(const std::string& owner);

  // Stores a new file. Sets its id, bytes and created_at. Errors: 503 if the other files leave too little room or the
  // disk is full, 413 if the file alone exceeds the limit, and 500 for any other fault of the disk.
  ApiResult<StoredFile> put(StoredFile file, std::string_view content);
  // Moves the file at `path` into the store. Precondition: the caller has reserved the file's bytes with take(). Sets
  // the file's id and created_at. Errors: 503 for a full disk, and 500 for any other fault. After an error, the bytes
  // are no longer reserved.
  ApiResult<StoredFile> adopt(StoredFile file, const std::filesystem::path& path);
  // take() reserves bytes for a later adopt(), and give_back() ends the reservation. Errors: 503 if there is no room,
  // and 413 if the bytes alone exceed the limit.
  ApiStatus take(std::int64_t bytes);
  void give_back(std::int64_t bytes);
  // Returns the bytes of all files, including reserved bytes.
  std::int64_t used();
  std::int64_t limit() const { return limits_.bytes; }

  // Errors: 404 if there is no such file, it has expired, or it has another owner.
  ApiResult<StoredFile> find(std::string_view id, std::string_view owner);
  ApiStatus erase(std::string_view id, std::string_view owner);
  // Returns the owner's files, the newest first.
  std::vector<StoredFile> list(std::string_view owner);
  // Returns the path of a stored file's content. If a file is open when it is erased, the reader can still read it.
  std::filesystem::path path_of(std::string_view id) const { return folder_ / id; }

 private:
  FileStore(std::filesystem::path folder, Limits limits, Clock clock)
      : folder_(std::move(folder)), limits_(limits), clock_(std::move(clock)) {}
  Status load();
  // Precondition of the next three functions: mutex_ is held.
  ApiStatus make_room(std::int64_t bytes, std::size_t files);
  void erase_old();
  void remove(std::string id);  // takes a copy, because the caller's string may be in the entry that is erased

  Status write_description(const StoredFile& file) const;
  // Writes the description of a file whose content is in the folder and whose bytes are reserved. After an error,
  // erases the content and gives the bytes back.
  ApiResult<StoredFile> describe(StoredFile file);

  const std::filesystem::path folder_;
  const Limits limits_;
  const Clock clock_;
  std::mutex mutex_;
  std::map<std::string, StoredFile, std::less<>> files_;  // guarded by mutex_
  std::int64_t used_ = 0;                                 // guarded by mutex_
};

}  // namespace tessera
