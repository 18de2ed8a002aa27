#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <numeric>
#include <unordered_set>

#include "tessera/base/json.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera {
namespace {

Status check(const std::string& path, std::span<const TensorLayout> tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorLayout& tensor : tensors) {
    const std::string what = fmt::format("writing {}: tensor {}", path, Json(tensor.name).dump());
    if (tensor.name == "__metadata__") return invalid_argument(what + ": the name is reserved by the format");
    if (!names.insert(tensor.name).second) return invalid_argument(what + " is given twice");
    if (tensor.shape.size() > SafetensorsFile::kMaxRank) {
      return invalid_argument(fmt::format("{}: shape is {}; accepted: at most {} dimensions", what,
                                          shape_text(tensor.shape), SafetensorsFile::kMaxRank));
    }
    if (!tensor_bytes(tensor.shape, tensor.dtype)) {
      return invalid_argument(fmt::format("{}: shape is {}; accepted: sizes of 0 or more whose product fits 63 bits",
                                          what, shape_text(tensor.shape)));
    }
  }
  return ok_status();
}

std::int64_t bytes_of(const TensorLayout& tensor) { return tensor_bytes(tensor.shape, tensor.dtype).value_or(0); }

// Returns length and header, padded with spaces to a multiple of 8. The tensors' data follows in the order of `order`.
std::string header_bytes(std::span<const TensorLayout> tensors, std::span<const std::size_t> order,
                         const std::map<std::string, std::string>& metadata) {
  Json::Object members;
  if (!metadata.empty()) {
    Json::Object strings;
    for (const auto& [key, value] : metadata) strings.emplace_back(key, Json(value));
    members.emplace_back("__metadata__", Json::object(std::move(strings)));
  }
  std::int64_t offset = 0;
  for (const std::size_t index : order) {
    const TensorLayout& tensor = tensors[index];
    Json::Array shape;
    for (std::int64_t size : tensor.shape) shape.emplace_back(size);
    Json::Array range;
    range.emplace_back(offset);
    offset += bytes_of(tensor);
    range.emplace_back(offset);
    Json::Object entry;
    entry.emplace_back("dtype", Json(stored_dtype_name(tensor.dtype)));
    entry.emplace_back("shape", Json(std::move(shape)));
    entry.emplace_back("data_offsets", Json(std::move(range)));
    members.emplace_back(tensor.name, Json::object(std::move(entry)));
  }
  std::string text = Json::object(std::move(members)).dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + text;
}

// A temporary file beside `path`. The destructor removes it unless commit() renamed it to `path`.
class ReplacementFile {
 public:
  explicit ReplacementFile(const std::string& path) : path_(path) {
    static std::atomic<unsigned> counter{0};
    temporary_ = fmt::format("{}.tmp-{}-{}", path, ::getpid(), counter.fetch_add(1));
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0) status_ = failed("create");
  }
  ~ReplacementFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  // Writes at byte `offset` of the file. Any thread may call it.
  Status write(std::int64_t offset, std::span<const std::byte> data) const {
    TRY(status_);
    while (!data.empty()) {
      const ssize_t written = ::pwrite(fd_, data.data(), std::min<std::size_t>(data.size(), 1u << 30), offset);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return failed("write");
      offset += written;
      data = data.subspan(static_cast<std::size_t>(written));
    }
    return ok_status();
  }

  Status commit() {
    TRY(status_);
    if (::fsync(fd_) != 0) return status_ = failed("write");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return status_ = failed("rename");
    ::close(fd_);
    fd_ = -1;
    return ok_status();
  }

 private:
  Status failed(const char* what) const {
    return data_loss(fmt::format("cannot {} {} for {}: {}", what, temporary_, path_, std::strerror(errno)));
  }
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  Status status_;
};

// The amount that one thread fills and writes at a time.
struct Chunk {
  std::size_t tensor = 0;
  std::int64_t first = 0;  // first byte in the tensor
  std::int64_t bytes = 0;
  std::int64_t at = 0;  // first byte in the file
};

std::vector<Chunk> chunks_of(std::span<const TensorLayout> tensors, std::span<const std::size_t> order,
                             std::int64_t at) {
  std::vector<Chunk> chunks;
  for (const std::size_t index : order) {
    const std::int64_t bytes = bytes_of(tensors[index]);
    for (std::int64_t first = 0; first < bytes; first += kWriteBytes)
      chunks.push_back({index, first, std::min(kWriteBytes, bytes - first), at + first});
    at += bytes;
  }
  return chunks;
}

// Fills and writes all chunks. The first error ends it.
Status write_chunks(std::span<const Chunk> chunks, const TensorContent& content, const ReplacementFile& file) {
  std::int64_t largest = 0;
  for (const Chunk& chunk : chunks) largest = std::max(largest, chunk.bytes);
  const auto workers = std::min(static_cast<std::size_t>(worker_threads()), chunks.size());
  std::vector<std::vector<std::byte>> buffers(workers, std::vector<std::byte>(static_cast<std::size_t>(largest)));
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  Status failed;
  const auto write = [&](const Chunk& chunk, std::span<std::byte> buffer) -> Status {
    TRY(content.fill(chunk.tensor, chunk.first, buffer));
    TRY(file.write(chunk.at, buffer));
    const std::lock_guard lock(mutex);
    return content.on_written ? content.on_written(chunk.bytes) : ok_status();
  };
  parallel_for_dynamic(static_cast<std::int64_t>(workers), [&](std::int64_t worker) {
    std::vector<std::byte>& buffer = buffers[static_cast<std::size_t>(worker)];
    for (std::size_t i = next++; i < chunks.size(); i = next++) {
      const Status status = write(chunks[i], std::span(buffer).first(static_cast<std::size_t>(chunks[i].bytes)));
      if (status.ok()) continue;
      next = chunks.size();
      const std::lock_guard lock(mutex);
      if (failed.ok()) failed = status;
    }
  });
  return failed;
}

}  // namespace

Status write_safetensors(const std::string& path, std::span<const TensorLayout> tensors, const TensorContent& content,
                         const std::map<std::string, std::string>& metadata) {
  TRY(check(path, tensors));
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](std::size_t i) { return stored_dtype_bytes(tensors[i].dtype); });
  ReplacementFile file(path);
  const std::string header = header_bytes(tensors, order, metadata);
  TRY(file.write(0, std::as_bytes(std::span(header))));
  TRY(write_chunks(chunks_of(tensors, order, static_cast<std::int64_t>(header.size())), content, file));
  return file.commit();
}

Status write_safetensors(const std::string& path, std::span<const StoredTensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<TensorLayout> layouts;
  for (const StoredTensor& tensor : tensors) {
    const std::optional<std::int64_t> bytes = tensor_bytes(tensor.shape, tensor.dtype);
    if (bytes && static_cast<std::uint64_t>(*bytes) != tensor.data.size()) {
      return invalid_argument(fmt::format(
          "writing {}: tensor {} has {} bytes of data; accepted: what dtype {} and shape {} need", path,
          Json(tensor.name).dump(), tensor.data.size(), stored_dtype_name(tensor.dtype), shape_text(tensor.shape)));
    }
    layouts.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  const TensorContent content{.fill = [&](std::size_t index, std::int64_t offset, std::span<std::byte> to) {
    std::memcpy(to.data(), tensors[index].data.data() + offset, to.size());
    return ok_status();
  }};
  return write_safetensors(path, layouts, content, metadata);
}

}  // namespace tessera
